package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/usage"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// topWorkspaces is how many workspaces kcpctl top workspaces lists without --all.
const topWorkspaces = 20

type topWorkspacesOptions struct {
	env    *Env
	setup  setupFlags
	shards []string
	output string
	all    bool
}

func newTopWorkspacesCmd(env *Env) *cobra.Command {
	o := &topWorkspacesOptions{env: env}
	c := &cobra.Command{
		Use:   "workspaces",
		Short: "Show which workspaces store the most",
		Long: `Read all keys of the managed or embedded etcd of each shard, and count objects and bytes by
workspace. This reads as much as a backup does, so do not run it often. No value is stored. The exit code is 5
if a cluster with shards cannot be reached.`,
		Example: `  kcpctl top workspaces --shard alpha
  kcpctl top workspaces -o json | jq '.items[] | select(.bytes > 1000000) | .path'`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	f := c.Flags()
	o.setup.add(f)
	addOutput(c, &o.output, "", machineFormats...)
	f.StringSliceVar(&o.shards, "shard", nil, "read only this shard, such as alpha or root (repeatable)")
	f.BoolVarP(&o.all, "all", "A", false,
		fmt.Sprintf("list all workspaces, not only the %d largest ones", topWorkspaces))
	completeFlag(c, "shard", o.setup.names(env, shardNames))
	return c
}

func (o *topWorkspacesOptions) run(ctx context.Context) error {
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	only, err := selectedShards(s, o.shards)
	if err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	all, err := storedBy(ctx, s, only)
	if err != nil {
		return err
	}
	if o.output != "" {
		err = encode(o.env.Streams.Out, o.output, partialList[usage.Workspace]{
			listOf("WorkspaceUsageList", s.topology.Name, all.found), all.without,
		})
	} else {
		o.print(all.found)
	}
	return cmp.Or(err, unknownOf(all.unread), unknownOn("workspaces", all.without))
}

// unknownOf is the error of a list without the shards that cannot be read, or nil.
func unknownOf(unread []error) error {
	if len(unread) == 0 {
		return nil
	}
	var reasons []string
	for _, err := range unread {
		reasons = append(reasons, firstLine(err.Error()))
	}
	return clierr.New(clierr.Unknown, "name the shards to read with --shard; kcpctl status shows what does not run",
		"the workspaces are not known of shards that cannot be read: %s", gather.Few(reasons, gather.Listed, "; "))
}

// storage has the storage that the workspaces of shards use.
type storage struct {
	found []usage.Workspace
	// without are clusters that cannot be reached, with shards, and unread the reasons why other shards cannot be read.
	without []string
	unread  []error
}

// storedBy reads what the workspaces of some shards store, or of all.
func storedBy(ctx context.Context, s *session, only []topology.ID) (*storage, error) {
	lost, state, err := s.readable(ctx)
	if err != nil {
		return nil, err
	}
	from, err := s.snapshots()
	if err != nil {
		return nil, err
	}
	wanted := slices.DeleteFunc(slices.Clone(s.topology.Shards()),
		func(c *topology.Component) bool { return len(only) > 0 && !slices.Contains(only, c.ID()) })
	shards, without := withReachable(wanted, lost)
	out := &storage{without: without}
	for _, c := range shards {
		some, err := stored(ctx, s, c, state, from)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			out.unread = append(out.unread, err)
		}
		out.found = append(out.found, some...)
	}
	usage.Sort(out.found)
	return out, nil
}

// stored reads what the workspaces of a shard store.
func stored(
	ctx context.Context, s *session, c *topology.Component, state *pki.State, from backup.Source,
) ([]usage.Workspace, error) {
	in, _, err := from.Snapshots(ctx, c) // without a majority, it lists no keys
	if err != nil {
		return nil, err
	}
	defer in.Close()
	client, err := kcp.Connect(s.runtime, c, state, s.env.Now())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return usage.Stored(ctx, c, client, in)
}

func (o *topWorkspacesOptions) print(all []usage.Workspace) {
	shown := all
	if !o.all {
		shown = all[:min(len(all), topWorkspaces)]
	}
	var rows [][]string
	for _, w := range shown {
		rows = append(rows, []string{w.Path, string(w.Shard), strconv.Itoa(w.Objects), bytesize.Format(w.Bytes)})
	}
	ui.Table(o.env.Streams.Out, []string{"WORKSPACE", "SHARD", "OBJECTS", "SIZE"}, rows...)
	if more := len(all) - len(shown); more > 0 {
		o.env.note(fmt.Sprintf("%d more workspaces: kcpctl top workspaces --all", more))
	}
}

package cmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/backup"
	"github.com/kcpctl/kcpctl/internal/engine/usage"
	"github.com/kcpctl/kcpctl/internal/kit/bytesize"
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
workspace. This reads as much as a backup does, so do not run it often. No value is stored.`,
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
	found, err := storedBy(ctx, s, only)
	if err != nil {
		return err
	}
	if o.output != "" {
		return encode(o.env.Streams.Out, o.output, listOf("WorkspaceUsageList", s.topology.Name, found))
	}
	o.print(found)
	return nil
}

// storedBy reads what the workspaces of some shards store, or of all.
func storedBy(ctx context.Context, s *session, only []topology.ID) ([]usage.Workspace, error) {
	lost, state, err := s.readable(ctx)
	if err != nil {
		return nil, err
	}
	from, err := s.snapshots()
	if err != nil {
		return nil, err
	}
	var found []usage.Workspace
	for _, c := range s.topology.Shards() {
		if _, unknown := plan.UnreachableIn(lost, c.Cluster.Name); unknown {
			continue
		}
		if len(only) > 0 && !slices.Contains(only, c.ID()) {
			continue
		}
		some, err := stored(ctx, s, c, state, from)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	usage.Sort(found)
	return found, nil
}

// stored reads what the workspaces of a shard store.
func stored(
	ctx context.Context, s *session, c *topology.Component, state *pki.State, from backup.Source,
) ([]usage.Workspace, error) {
	in, err := from.Snapshots(ctx, c)
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

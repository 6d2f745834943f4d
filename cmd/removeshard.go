package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/gather"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type removeShardOptions struct {
	env     *Env
	setup   setupFlags
	args    []string
	names   []string
	drain   bool
	purge   bool
	lose    bool
	yes     bool
	timeout time.Duration
	output  string
}

func newRemoveShardCmd(env *Env) *cobra.Command {
	o := &removeShardOptions{env: env}
	c := &cobra.Command{
		Use:   "remove-shard NAME...",
		Short: "Remove empty shards from kcp and from the setup file",
		Long: `Remove-shard cordons the shards and checks that they are empty. If one of them is not, the command lists
what it found and changes nothing else. With --drain it moves the workspaces to the other shards; this
requires kcp v0.32 or later with the feature gate LogicalClusterMigration on all shards. A workspace
cannot be used while it is being moved.

Then it removes the shards from kcp, from the setup file, and from the cluster with their workloads and
certificates. The data of the shards stays, unless --purge deletes it. Rerun the command to continue
after an interruption.

cluster/NAME stands for all shards on a cluster.

A shard whose workspaces cannot be listed is not removed. If it is lost for good, such as with its cluster,
--` + run.FlagAllowWorkspaceLoss + ` removes it: its workspaces are lost, too.`,
		Example: `  kcpctl remove-shard gamma
  kcpctl remove-shard gamma --drain --purge --yes
  kcpctl remove-shard cluster/us --drain`,
		Args: someArgs("shard name"),
		RunE: func(c *cobra.Command, args []string) error {
			o.args = args
			return o.run(c.Context())
		},
		ValidArgsFunction: completeArgs(0, o.setup.names(env, withClusters(removableShards))),
	}
	f := c.Flags()
	o.setup.add(f)
	f.BoolVar(&o.drain, "drain", false, "move the workspaces of the shards to the other shards")
	f.BoolVar(&o.purge, "purge", false, "also delete the data of the shards")
	f.BoolVar(&o.lose, run.FlagAllowWorkspaceLoss, false, "also remove shards that are lost, with their workspaces")
	addYes(f, &o.yes)
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "how long the removal may take (0 means no limit)")
	allow(f, anywhere, "timeout")
	addEvents(c, &o.output)
	return c
}

func (o *removeShardOptions) validate() error {
	return errors.Join(checkTimeout(o.timeout), setup.CheckEditable(o.setup.file))
}

func (o *removeShardOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	if err := o.choose(s); err != nil {
		return err
	}
	after, err := o.edited(s)
	if err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	if !o.yes {
		yes, err := o.env.Streams.Confirm(ctx, o.question(s))
		if err != nil || !yes {
			return err
		}
	}
	return o.remove(ctx, s, after)
}

// choose finds out which shards to remove.
func (o *removeShardOptions) choose(s *session) error {
	var err error
	if o.names, err = expandShards(s, o.args); err != nil {
		return err
	}
	if slices.Contains(o.names, topology.RootShardName) || slices.Contains(o.names, string(topology.RootShard)) {
		return clierr.New(clierr.BadInput, "to remove the whole setup, run "+o.setup.command("down"),
			"the root shard cannot be removed: it holds the root workspace")
	}
	return nil
}

// edited is the setup without the shards; the same setup if they are already removed from the file.
func (o *removeShardOptions) edited(s *session) (*session, error) {
	edited := s.file
	for _, name := range o.names {
		if !slices.ContainsFunc(s.file.Setup.Spec.Shards, func(sh v1alpha1.Shard) bool { return sh.Name == name }) {
			continue
		}
		var err error
		if edited, err = edited.RemoveShard(name); err != nil {
			return nil, err
		}
	}
	return s.with(edited)
}

func (o *removeShardOptions) remove(ctx context.Context, s, after *session) error {
	text, err := setup.Marshal(s.file.Setup)
	if err != nil {
		return err
	}
	r := &run.RemoveShards{
		Topology: s.topology, Runtime: s.runtime, Names: o.names, Drain: o.drain, Purge: o.purge, AllowWorkspaceLoss: o.lose,
		CheckEdit: func() error { return s.file.CheckRewrite(o.setup.file) },
		Before:    text,
		Edit: func() ([]byte, error) {
			if edit := s.writeEdit(after); edit != nil {
				if err := edit(); err != nil {
					return nil, err
				}
			}
			return setup.Marshal(after.file.Setup)
		},
		Observe: s.reporter.observe, Now: o.env.Now, Timeout: o.timeout,
	}
	end := s.reporter.begin(ctx, fmt.Sprintf("remove %s from kcp %q", o.shards(), s.topology.Name), o.output)
	err = r.Run(ctx)
	end()
	if err == nil && o.output == "" {
		fmt.Fprintf(o.env.Streams.Err, "\nremoved %s.\n", o.shards())
		o.remaining(s, after)
	}
	return err
}

// shards names the shards in a sentence.
func (o *removeShardOptions) shards() string {
	if len(o.names) == 1 {
		return fmt.Sprintf("shard %q", o.names[0])
	}
	return "shards " + gather.Few(o.names, gather.Listed, ", ")
}

// remaining names what the setup still has on a cluster that the user takes out of service.
func (o *removeShardOptions) remaining(s, after *session) {
	for _, arg := range o.args {
		cluster, is := strings.CutPrefix(arg, clusterPrefix)
		if !is {
			continue
		}
		there := slices.DeleteFunc(after.topology.On(topology.Cluster{Name: cluster}),
			func(c *topology.Component) bool { return c.Kind == topology.Base })
		what := "cluster " + cluster
		if len(there) > 0 {
			what = strings.Join(idsOf(there), ", ") + " and " + what
		}
		fmt.Fprintf(o.env.Streams.Err, "To take the cluster out of service, remove %s from %s, and run %s.\n",
			what, s.file.Name, o.setup.command("up"))
	}
}

func (o *removeShardOptions) question(s *session) string {
	what := fmt.Sprintf("Remove %s of kcp %q from %s", o.shards(), s.topology.Name, s.runtime.Where())
	if o.drain {
		what += ", after moving the workspaces to other shards"
	}
	data := "? The data stays."
	if o.purge {
		data = ", and delete the data? This cannot be undone."
	}
	if o.lose {
		what += ", also if the workspaces cannot be listed and are lost"
	}
	return what + data
}

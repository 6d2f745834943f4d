package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type removeShardOptions struct {
	setupOptions
	name    string
	drain   bool
	purge   bool
	yes     bool
	timeout time.Duration
	output  string
}

func newRemoveShardCmd(g *globalOptions) *cobra.Command {
	o := &removeShardOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "remove-shard NAME",
		Short: "Take an empty shard out of kcp and of the setup file",
		Long: `Remove-shard cordons a shard and looks what lives there. If anything does, it is listed and nothing is changed; with
--drain it is moved to the other shards, where kcp can do that: from v0.32 on, with the feature gate LogicalClusterMigration
on all shards. A workspace cannot be used while it moves.

Then kcp forgets the shard, the setup file loses it, and its workload and certificates are removed. Its data stays, unless
--purge deletes it. A removal that was interrupted continues when it is run again.`,
		Example: `  kcpctl remove-shard gamma
  kcpctl remove-shard gamma --drain --purge --yes`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	c.ValidArgsFunction = completeArgs(1, o.fromFile(otherShards))
	f := c.Flags()
	o.addFlags(f)
	f.BoolVar(&o.drain, "drain", false, "move what lives there to the other shards")
	f.BoolVar(&o.purge, "purge", false, "also delete the shard's data")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "how long it may take, 0 for ever")
	allow(f, anywhere(), "timeout")
	addEvents(c, &o.output)
	return c
}

func (o *removeShardOptions) complete(args []string) (err error) {
	if o.name, err = oneArg(args, "shard name"); err != nil {
		return err
	}
	if o.name == topology.RootShardName || o.name == string(topology.RootShard) {
		return clierr.New(clierr.BadInput, "kcpctl down removes the whole setup", "the root shard cannot be removed: it holds the root workspace")
	}
	return errors.Join(checkTimeout(o.timeout), setup.CheckEditable(o.file))
}

func (o *removeShardOptions) run(ctx context.Context) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	edited := s.File
	if slices.ContainsFunc(s.File.Setup.Spec.Shards, func(sh v1alpha1.Shard) bool { return sh.Name == o.name }) {
		if edited, err = s.File.RemoveShard(o.name); err != nil {
			return err
		}
	}
	after, err := s.with(edited)
	if err != nil {
		return err
	}
	rt, err := s.open()
	if err != nil {
		return err
	}
	defer rt.Close()
	if !o.yes {
		yes, err := o.Streams.Confirm(ctx, o.question(s, rt))
		if err != nil || !yes {
			return err
		}
	}
	return o.remove(ctx, s, after, rt)
}

func (o *removeShardOptions) remove(ctx context.Context, s, after *session, rt run.Runtime) error {
	text, err := setup.Marshal(s.File.Setup)
	if err != nil {
		return err
	}
	end := s.begin(ctx, fmt.Sprintf("remove shard %q from kcp %q", o.name, s.Topology.Name), o.output)
	r := &run.RemoveShard{
		Topology: s.Topology, Runtime: rt, Name: o.name, Drain: o.drain, Purge: o.purge,
		CheckEdit: func() error { return s.File.CheckRewrite(s.file) },
		Before:    text,
		Edit: func() ([]byte, error) {
			if edit := s.edit(after); edit != nil {
				if err := edit(); err != nil {
					return nil, err
				}
			}
			return setup.Marshal(after.File.Setup)
		},
		Observe: s.observe, Now: o.Now, Timeout: o.timeout,
	}
	err = r.Run(ctx)
	end()
	if err == nil && o.output == "" {
		fmt.Fprintf(o.Streams.Err, "\nshard %q is gone.\n", o.name)
	}
	return err
}

func (o *removeShardOptions) question(s *session, rt run.Runtime) string {
	what := fmt.Sprintf("Remove shard %q of kcp %q from %s", o.name, s.Topology.Name, rt.Where())
	if o.drain {
		what += ", after moving what lives there to other shards"
	}
	if o.purge {
		return what + ", and delete its data? There is no way back."
	}
	return what + "? Its data stays."
}

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
	env     *Env
	setup   setupFlags
	name    string
	drain   bool
	purge   bool
	yes     bool
	timeout time.Duration
	output  string
}

func newRemoveShardCmd(env *Env) *cobra.Command {
	o := &removeShardOptions{env: env}
	c := &cobra.Command{
		Use:   "remove-shard NAME",
		Short: "Remove an empty shard from kcp and from the setup file",
		Long: `Remove-shard cordons the shard and checks that it is empty. If it is not, the command lists what it
found and changes nothing else. With --drain it moves the workspaces to the other shards; this requires
kcp v0.32 or later with the feature gate LogicalClusterMigration on all shards. A workspace cannot be
used while it is being moved.

Then it removes the shard from kcp, from the setup file, and from the cluster with its workload and
certificates. The shard's data stays, unless --purge deletes it. Rerun the command to continue after an
interruption.`,
		Example: `  kcpctl remove-shard gamma
  kcpctl remove-shard gamma --drain --purge --yes`,
		Args: oneArg("shard name"),
		RunE: func(c *cobra.Command, args []string) error {
			o.name = args[0]
			return o.run(c.Context())
		},
		ValidArgsFunction: completeArgs(1, o.setup.names(env, removableShards)),
	}
	f := c.Flags()
	o.setup.add(f)
	f.BoolVar(&o.drain, "drain", false, "move the shard's workspaces to the other shards")
	f.BoolVar(&o.purge, "purge", false, "also delete the shard's data")
	addYes(f, &o.yes)
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "how long the removal may take (0 means no limit)")
	allow(f, anywhere, "timeout")
	addEvents(c, &o.output)
	return c
}

func (o *removeShardOptions) validate() error {
	if o.name == topology.RootShardName || o.name == string(topology.RootShard) {
		return clierr.New(clierr.BadInput, "to remove the whole setup, run "+o.setup.command("down"),
			"the root shard cannot be removed: it holds the root workspace")
	}
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

// edited is the setup without the shard; the same setup if the shard is already removed from the file.
func (o *removeShardOptions) edited(s *session) (*session, error) {
	edited := s.file
	if slices.ContainsFunc(s.file.Setup.Spec.Shards, func(sh v1alpha1.Shard) bool { return sh.Name == o.name }) {
		var err error
		if edited, err = s.file.RemoveShard(o.name); err != nil {
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
	r := &run.RemoveShard{
		Topology: s.topology, Runtime: s.runtime, Name: o.name, Drain: o.drain, Purge: o.purge,
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
	end := s.reporter.begin(ctx, fmt.Sprintf("remove shard %q from kcp %q", o.name, s.topology.Name), o.output)
	err = r.Run(ctx)
	end()
	if err == nil && o.output == "" {
		fmt.Fprintf(o.env.Streams.Err, "\nshard %q was removed.\n", o.name)
	}
	return err
}

func (o *removeShardOptions) question(s *session) string {
	what := fmt.Sprintf("Remove shard %q of kcp %q from %s", o.name, s.topology.Name, s.runtime.Where())
	if o.drain {
		what += ", after moving its workspaces to other shards"
	}
	if o.purge {
		return what + ", and delete its data? This cannot be undone."
	}
	return what + "? Its data stays."
}

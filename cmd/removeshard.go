package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type removeShardOptions struct {
	env    *Env
	setup  setupFlags
	args   []string
	names  []string
	drain  bool
	purge  bool
	lose   bool
	accept []string
	// concurrency is how many workspaces move at the same time.
	concurrency number
	removalFlags
	timeout time.Duration
	output  string
}

func newRemoveShardCmd(env *Env) *cobra.Command {
	o := &removeShardOptions{env: env}
	c := &cobra.Command{
		Use:   "remove-shard NAME...",
		Short: "Remove empty shards from kcp and from the setup file",
		Long: `Cordon the shards and check that they are empty. If one of them is not, the command lists what it found
and changes nothing else. With --drain it moves the workspaces to the other shards; this
requires kcp v0.32 or later with the feature gate LogicalClusterMigration on all shards. A workspace
cannot be used while it is being moved.

Then it removes the shards from kcp, from the setup file, and from the cluster with their workloads and
certificates. The data of the shards stays, unless --purge deletes it. Rerun the command to continue
after an interruption.

place/NAME stands for all shards on a cluster of spec.clusters.

Copies of the certificates of a removed shard open the other shards until they expire. If others can read
them, such as on a disk, run kcpctl certs rotate-ca client server etcd, and finish it.

A shard whose workspaces cannot be listed is not removed. If it is lost for good, such as with its cluster,
--allow workspace-loss removes it: its workspaces are lost, too.`,
		Example: `  kcpctl remove-shard gamma
  kcpctl remove-shard gamma --drain --purge --yes
  kcpctl remove-shard place/us --drain`,
		Args:              someArgs("shard name"),
		RunE:              withArgs(&o.args, o.run),
		ValidArgsFunction: completeArgs(0, o.setup.names(env, withPlaces(removableShards, removableOnly))),
	}
	f := c.Flags()
	o.setup.add(f)
	f.BoolVar(&o.drain, "drain", false, "move the workspaces of the shards to the other shards")
	f.BoolVar(&o.purge, "purge", false, "also delete the data of the shards")
	addRisk(c, acceptance{risk: risk.WorkspaceLoss, accept: set(&o.lose),
		usage: "also remove shards that are lost for good, with their workspaces"})
	addUnverifiedCopy(c, &o.accept)
	addConcurrency(f, &o.concurrency)
	requireFlag(f, "drain", "concurrency")
	o.addRemoval(c, "the edit")
	addTimeout(f, &o.timeout, "remove the shards")
	addEvents(c, &o.output)
	return c
}

func (o *removeShardOptions) validate() error {
	return errors.Join(o.validateDryRun(), setup.CheckEditable(o.setup.file))
}

func (o *removeShardOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.drain {
		o.env.Command += " --drain" // the command that continues needs it
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
	if o.dry() {
		s.printEdit(after.file)
	}
	if o.inClient() {
		return nil
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	r, err := o.removal(s, after)
	if err != nil {
		return err
	}
	var objects []plan.Item
	yes, err := removal{
		removalFlags: &o.removalFlags, session: s, question: o.question(s),
		check:   func(ctx context.Context) (err error) { objects, err = r.Check(ctx, o.dry()); return err },
		preview: func(context.Context) error { s.env.printPlan(deletionOf(objects)); return nil },
	}.confirmed(ctx)
	if err != nil || !yes {
		return err
	}
	return o.remove(ctx, s, after, r)
}

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

// removal is the removal of the shards. The session with the edited file is after.
func (o *removeShardOptions) removal(s, after *session) (*shards.RemoveShards, error) {
	text, err := setup.Marshal(s.file.Setup)
	if err != nil {
		return nil, err
	}
	return &shards.RemoveShards{
		Topology: s.topology, Runtime: s.runtime, Names: o.names, Drain: o.drain, Purge: o.purge,
		AllowWorkspaceLoss: o.lose,
		MoveOptions:        shards.MoveOptions{Concurrency: int(o.concurrency), AllowUnverifiedCopy: o.accept},
		CheckEdit:          func() error { return s.file.CheckRewrite(o.setup.file) },
		Before:             text,
		Edit: func() (plan.Applied, error) {
			if edit := s.writeEdit(after); edit != nil {
				if err := edit(); err != nil {
					return plan.Applied{}, err
				}
			}
			text, err := setup.Marshal(after.file.Setup)
			return plan.Applied{Setup: text, File: after.file.Data}, err
		},
		Observe: s.reporter.observe, Now: o.env.Now, Timeout: o.timeout,
	}, nil
}

func (o *removeShardOptions) remove(ctx context.Context, s, after *session, r *shards.RemoveShards) error {
	end := s.reporter.begin(ctx, fmt.Sprintf("remove %s from kcp %q", o.shards(), s.topology.Name))
	err := r.Run(ctx)
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
		cluster, is := strings.CutPrefix(arg, placePrefix)
		if !is {
			continue
		}
		there := onPlace(after, cluster)
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

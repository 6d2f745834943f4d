package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/engine/compute"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// leavesTime is how long it may take to list the objects that remain in a cluster, before the command asks without it.
const leavesTime = time.Minute

type clusterRemoveOptions struct {
	env   *Env
	setup setupFlags
	name  string
	force bool
	removalFlags
	timeout time.Duration
}

func newClusterRemoveCmd(env *Env) *cobra.Command {
	o := &clusterRemoveOptions{env: env}
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Drain a physical cluster, and remove it from kcp and from the setup file",
		Long: `Drain a physical cluster of the setup file, delete its Cluster, its credential, and the account of the
syncer on the cluster, and remove it from the file, keeping the other comments, order and style. Other changes
of the file are not applied.

With --force the cluster is not drained: what is scheduled to it is scheduled to other clusters, and objects with
the label of the cluster are deleted in their workspaces. All of them stay in the cluster: the command lists them
before it asks. Use it for a cluster that does not exist any longer.

Rerun the command to continue after an interruption.`,
		Example: `  kcpctl cluster remove c1
  kcpctl cluster remove c1 --force --yes`,
		Args:              oneArg("cluster name"),
		RunE:              withArg(&o.name, o.run),
		ValidArgsFunction: completeArgs(1, o.setup.names(env, physicalNames)),
	}
	f := c.Flags()
	o.setup.add(f)
	f.BoolVar(&o.force, "force", false, "do not drain the cluster: give up what is scheduled to it")
	o.addRemoval(c, "the edit")
	addTimeout(f, &o.timeout, "remove the cluster")
	return c
}

func (o *clusterRemoveOptions) run(ctx context.Context) error {
	if err := errors.Join(o.validateDryRun(), setup.CheckEditable(o.setup.file)); err != nil {
		return err
	}
	ctx, cancel := limited(ctx, o.timeout, "removed")
	defer cancel()
	if o.inClient() {
		return o.printClient(ctx)
	}
	c, err := openCompute(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	s := c.session
	defer s.close()
	if !slices.Contains(physicalNames(s), o.name) {
		return o.notInFile(ctx, c)
	}
	switch {
	case o.force:
		o.env.printLeaves(ctx, c.Workspace, o.name, "stay in", c.EachObject)
	case o.dry():
		o.env.printLeaves(ctx, c.Workspace, o.name, "would be moved from", c.EachObject)
	}
	yes, err := removal{
		removalFlags: &o.removalFlags, session: s, question: o.question(s),
		preview: func(ctx context.Context) error { return o.show(ctx, s) },
	}.confirmed(ctx)
	if err != nil || !yes {
		return err
	}
	if err := o.empty(ctx, c); err != nil {
		return err
	}
	return o.remove(ctx, c.session)
}

// printClient prints the edit of the setup file. It contacts no cluster.
func (o *clusterRemoveOptions) printClient(ctx context.Context) error {
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	if names := physicalNames(s); !slices.Contains(names, o.name) {
		return unknownName("cluster", o.name, names)
	}
	return o.show(ctx, s)
}

// show prints the edit of the setup file and, in a server dry run, what would be deleted.
func (o *clusterRemoveOptions) show(ctx context.Context, s *session) error {
	after, err := o.edited(s)
	if err != nil {
		return err
	}
	return o.preview(ctx, s, after, o.upRun(s, after))
}

func (o *clusterRemoveOptions) question(s *session) string {
	if o.force {
		return fmt.Sprintf("Remove cluster %q from kcp %q, and give up what is scheduled to it? Objects stay in the "+
			"cluster. This cannot be undone.", o.name, s.topology.Name)
	}
	return fmt.Sprintf("Remove cluster %q from kcp %q, after moving what is scheduled to it to other clusters?",
		o.name, s.topology.Name)
}

// printLeaves lists the objects that are scheduled to a cluster, by workspace and API. does continues a sentence about
// them: "would be moved from". What cannot be read is named, and does not prevent the removal.
func (e *Env) printLeaves(ctx context.Context, w *compute.Workspace, cluster, does string, list compute.Lister) {
	ctx, cancel := context.WithTimeoutCause(ctx, leavesTime, fmt.Errorf("not listed after %s", leavesTime))
	defer cancel()
	live, err := w.Cluster(ctx, cluster)
	if err != nil {
		e.note(fmt.Sprintf("which objects %s cluster %q is not known: %s", does, cluster, firstLine(err.Error())))
		return
	}
	if live == nil {
		return
	}
	found, unread := w.Leaves(ctx, live, list)
	if len(found) > 0 {
		fmt.Fprintf(e.Streams.Err, "These objects of workspaces %s cluster %q:\n", does, cluster)
		ui.Table(e.Streams.Err, []string{"WORKSPACE", "API", "OBJECTS"}, mapped(found,
			func(l compute.Leaves) []string { return []string{l.Workspace, l.API, fmt.Sprint(l.Count)} })...)
	}
	for _, line := range unread {
		e.note(fmt.Sprintf("which other objects %s cluster %q is not known: %s", does, cluster, line))
	}
}

func (o *clusterRemoveOptions) notInFile(ctx context.Context, c *computeSession) error {
	live, err := c.Cluster(ctx, o.name)
	if err != nil {
		return err
	}
	if live == nil {
		return c.unknown(ctx, o.name)
	}
	return clierr.New(clierr.BadInput, "drain it with "+o.setup.command("cluster drain "+o.name)+
		", then delete its Cluster in workspace "+c.Path+" with kubectl",
		"cluster %q is not in %s, so kcpctl does not manage it", o.name, c.session.file.Name)
}

// empty drains the cluster, or with --force lets the controller give up what is scheduled to it. A cluster that is not
// registered has nothing.
func (o *clusterRemoveOptions) empty(ctx context.Context, c *computeSession) error {
	live, err := c.Cluster(ctx, o.name)
	switch {
	case err != nil || live == nil:
		return err
	case o.force:
		return c.GiveUp(ctx, o.name)
	case live.DeletionTimestamp != nil:
		return nil // the removal was interrupted
	}
	return c.drain(ctx, o.name, o.timeout)
}

// remove deletes what the setup has of the cluster, and then removes it from the file.
func (o *clusterRemoveOptions) remove(ctx context.Context, before *session) error {
	after, err := o.edited(before)
	if err != nil {
		return err
	}
	if err := after.connectToApply(ctx); err != nil {
		return err
	}
	defer after.close()
	if _, err := o.upRun(before, after).run(ctx, after); err != nil {
		return clierr.Also(err, "rerun the command to continue")
	}
	if err := before.file.Rewrite(o.setup.file, after.file); err != nil {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err, "\nremoved the cluster %q from kcp and from %s.\n", o.name, o.setup.file)
	return nil
}

// edited is the session for the file without the cluster. It still reaches the cluster.
func (o *clusterRemoveOptions) edited(before *session) (*session, error) {
	at := slices.IndexFunc(physicalClusters(before), func(c v1alpha1.WorkloadCluster) bool { return c.Name == o.name })
	file, err := before.file.RemoveCluster(o.name)
	if err != nil {
		return nil, err
	}
	after, err := before.with(file)
	if err != nil {
		return nil, err
	}
	after.removed = physicalClusters(before)[at : at+1]
	return after, nil
}

// upRun deletes only the objects of the cluster: first its Cluster, and when that is gone, the objects that its syncer
// needs. The file is edited last, so that a removal that was interrupted continues.
func (o *clusterRemoveOptions) upRun(before, after *session) upRun {
	ids := added(after.topology, before.topology) // the cluster, and the place of its syncer
	return upRun{
		header: fmt.Sprintf("remove cluster %q from kcp %q", o.name, after.topology.Name),
		wait:   waitFlags{timeout: o.timeout, skipCanary: true, parallel: 1},
		options: deploy.UpOptions{
			Only: ids, Removed: ids, Edit: func() error { return before.file.CheckRewrite(o.setup.file) },
		},
	}
}

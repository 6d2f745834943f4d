package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
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
	if err := errors.Join(o.validateDryRun(), checkTimeout(o.timeout), setup.CheckEditable(o.setup.file)); err != nil {
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
		c.printLeaves(ctx, o.name, "stay in")
	case o.dry():
		c.printLeaves(ctx, o.name, "would be moved from")
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

// printLeaves lists the objects that are scheduled to a cluster. does says what happens to them.
func (c *compute) printLeaves(ctx context.Context, name, does string) {
	ctx, cancel := context.WithTimeoutCause(ctx, leavesTime, fmt.Errorf("not listed after %s", leavesTime))
	defer cancel()
	leaves{env: c.session.env, cluster: name, does: does}.print(ctx, c,
		func(gr schema.GroupResource, do func(*unstructured.Unstructured)) error {
			return c.eachObject(ctx, gr, do)
		})
}

// leaves are the objects of workspaces that are scheduled to a cluster.
type leaves struct {
	env *Env
	// cluster is the name of the cluster. does continues a sentence about them: "would be moved from".
	cluster, does string
}

// print lists them by workspace and API: the leaves of the cluster in kcp. What cannot be read is named, and does not
// prevent the removal.
func (l leaves) print(
	ctx context.Context, c *compute, each func(schema.GroupResource, func(*unstructured.Unstructured)) error,
) {
	live, err := c.cluster(ctx, l.cluster)
	if err != nil {
		l.env.note(fmt.Sprintf("which objects %s cluster %q is not known: %s", l.does, l.cluster,
			firstLine(err.Error())))
		return
	}
	if live == nil {
		return
	}
	counts := map[[2]string]int{} // by logical cluster and API
	var unread []string
	for _, gr := range leafAPIs(live) {
		err := each(gr, func(leaf *unstructured.Unstructured) {
			if leaf.GetLabels()[api.LabelCluster] == l.cluster {
				counts[[2]string{leaf.GetAnnotations()[kcpapi.AnnotationCluster], gr.String()}]++
			}
		})
		if err != nil {
			unread = append(unread, fmt.Sprintf("%s: %s", gr, firstLine(err.Error())))
		}
	}
	names := map[string]bool{}
	for at := range counts {
		names[at[0]] = true
	}
	paths := c.paths(ctx, slices.Sorted(maps.Keys(names)))
	var rows [][]string
	for at, n := range counts {
		rows = append(rows, []string{paths[at[0]], at[1], fmt.Sprint(n)})
	}
	slices.SortFunc(rows, slices.Compare[[]string])
	if len(rows) > 0 {
		fmt.Fprintf(l.env.Streams.Err, "These objects of workspaces %s cluster %q:\n", l.does, l.cluster)
		ui.Table(l.env.Streams.Err, []string{"WORKSPACE", "API", "OBJECTS"}, rows...)
	}
	for _, line := range gather.Messages(unread) {
		l.env.note(fmt.Sprintf("which other objects %s cluster %q is not known: %s", l.does, l.cluster, line))
	}
}

// leafAPIs returns the APIs whose objects can be leaves: the APIs that are or were published, and the APIs of kcp
// itself that follow workloads.
func leafAPIs(cl *api.Cluster) (out []schema.GroupResource) {
	for _, a := range cl.Status.APIs {
		if a.State != api.APIIgnored {
			out = append(out, a.GroupResource())
		}
	}
	for _, r := range api.Dependencies() {
		if !slices.Contains(out, r.GroupResource()) {
			out = append(out, r.GroupResource())
		}
	}
	return out
}

// notInFile is the error for a cluster that is not in the setup file.
func (o *clusterRemoveOptions) notInFile(ctx context.Context, c *compute) error {
	live, err := c.cluster(ctx, o.name)
	if err != nil {
		return err
	}
	if live == nil {
		return c.unknown(ctx, o.name)
	}
	return clierr.New(clierr.BadInput, "drain it with "+o.setup.command("cluster drain "+o.name)+
		", then delete its Cluster in workspace "+c.workspace+" with kubectl",
		"cluster %q is not in %s, so kcpctl does not manage it", o.name, c.session.file.Name)
}

// empty drains the cluster, or with --force lets the controller give up what is scheduled to it. A cluster that is not
// registered has nothing.
func (o *clusterRemoveOptions) empty(ctx context.Context, c *compute) error {
	live, err := c.cluster(ctx, o.name)
	switch {
	case err != nil || live == nil:
		return err
	case o.force:
		return c.patch(ctx, o.name,
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.AnnotationForceRemoval: "true"}}})
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
		options: run.UpOptions{
			Only: ids, Removed: ids, Edit: func() error { return before.file.CheckRewrite(o.setup.file) },
		},
	}
}

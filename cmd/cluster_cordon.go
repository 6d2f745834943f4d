package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func newClusterCordonCmd(env *Env) *cobra.Command {
	return (&cordonOptions{env: env, cordon: true}).ofClusters(&cobra.Command{
		Use:   "cordon NAME",
		Short: "Mark a physical cluster as unschedulable",
		Long: `Mark a physical cluster as unschedulable: nothing new is scheduled to it, and what runs there stays. If the
cluster is in the setup file, the command sets unschedulable there too.`,
		Example: "  kcpctl cluster cordon c1",
	})
}

func newClusterUncordonCmd(env *Env) *cobra.Command {
	return (&cordonOptions{env: env}).ofClusters(&cobra.Command{
		Use:   "uncordon NAME",
		Short: "Mark a physical cluster as schedulable",
		Long: "Mark a cordoned or drained cluster as schedulable again. Replicas move back to " +
			"it in small steps.",
		Example: "  kcpctl cluster uncordon c1",
	})
}

func (o *cordonOptions) markCluster(ctx context.Context, c *compute) error {
	if err := c.cordon(ctx, o.name, o.cordon); err != nil {
		return err
	}
	state := "uncordoned"
	if o.cordon {
		state = "cordoned: nothing new is scheduled to it, and what runs there stays"
	}
	fmt.Fprintf(o.env.Streams.Err, "cluster %q is %s.\n", o.name, state)
	return nil
}

// cordon makes a cluster unschedulable or schedulable: in the setup file, if the cluster is in it, and in kcp. The
// session then has the edited file.
func (c *compute) cordon(ctx context.Context, name string, on bool) error {
	live, err := c.registered(ctx, name)
	if err != nil {
		return err
	}
	if err := c.endDrain(ctx, live, on); err != nil {
		return err
	}
	if err := c.cordonInFile(ctx, name, on); err != nil {
		return err
	}
	if live, err = c.cluster(ctx, name); err != nil {
		return err
	}
	return c.mark(ctx, live, on)
}

// registered returns a Cluster, which must exist.
func (c *compute) registered(ctx context.Context, name string) (*api.Cluster, error) {
	live, err := c.cluster(ctx, name)
	if err == nil && live == nil {
		err = c.unknown(ctx, name)
	}
	return live, err
}

// unknown is the error for a cluster that is not registered.
func (c *compute) unknown(ctx context.Context, name string) error {
	if slices.Contains(physicalNames(c.session), name) {
		return clierr.New(clierr.NotReady, "run "+c.session.flags.command("up")+" first",
			"the cluster %q is not registered yet", name)
	}
	all, err := c.clusters(ctx)
	if err != nil {
		return err
	}
	return unknownName("cluster", name, mapped(all, func(cl *api.Cluster) string { return cl.Name }))
}

// cordonInFile changes the setup file, and applies the Cluster as up does. A cluster that is not in the file, or has
// the value already, is not changed.
func (c *compute) cordonInFile(ctx context.Context, name string, on bool) error {
	s := c.session
	edited, err := cordonEdit(s, name, on)
	if err != nil || edited == s.file {
		return err
	}
	after, err := s.with(edited)
	if err != nil {
		return err
	}
	after.runtime = s.runtime
	c.session = after
	return run.Locked(ctx, s.runtime, func(ctx context.Context) error {
		if err := s.file.Rewrite(s.flags.file, edited); err != nil {
			return err
		}
		return c.applyCluster(ctx, name)
	}, nil)
}

// cordonEdit returns the setup file with the value of a cluster; the same file if the cluster has it already.
func cordonEdit(s *session, name string, on bool) (*setup.File, error) {
	at := slices.IndexFunc(physicalClusters(s), func(p v1alpha1.WorkloadCluster) bool { return p.Name == name })
	if at < 0 || physicalClusters(s)[at].Unschedulable == on {
		return s.file, nil
	}
	if err := setup.CheckEditable(s.flags.file); err != nil {
		return nil, err
	}
	return s.file.CordonCluster(name, on)
}

// printCordon prints what a drain changes in the setup file.
func printCordon(s *session, name string) error {
	edited, err := cordonEdit(s, name, true)
	if err == nil {
		s.printEdit(edited)
	}
	return err
}

// applyCluster applies only the Cluster object of the setup file.
func (c *compute) applyCluster(ctx context.Context, name string) error {
	s := c.session
	all, err := render.Component(s.topology, c.state, s.topology.Component(topology.IDOf(topology.Physical, name)))
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.GroupVersionKind() != api.ClusterGVK() {
			continue
		}
		if _, err := c.ApplyObject(ctx, c.place(name), o.Unstructured, false, false); err != nil {
			return clierr.New(clierr.Code(err),
				"the setup file is changed already: fix the cause and run "+s.flags.command("up"),
				"apply Cluster %s in %s: %w", name, c.workspace, err)
		}
	}
	return nil
}

// endDrain removes the request for a drain from a Cluster that becomes schedulable, and an old one from a Cluster that
// is only cordoned.
func (c *compute) endDrain(ctx context.Context, live *api.Cluster, cordon bool) error {
	if _, drain := live.Annotations[api.AnnotationDrain]; !drain || cordon && live.Spec.Unschedulable {
		return nil
	}
	return c.patch(ctx, live.Name,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.AnnotationDrain: nil}}})
}

// mark makes a Cluster unschedulable or schedulable, if it is not.
func (c *compute) mark(ctx context.Context, live *api.Cluster, on bool) error {
	if live == nil || live.Spec.Unschedulable == on {
		return nil
	}
	var value any // none is the default
	if on {
		value = true
	}
	return c.patch(ctx, live.Name, map[string]any{"spec": map[string]any{"unschedulable": value}})
}

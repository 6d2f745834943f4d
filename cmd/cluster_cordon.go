package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func newClusterCordonCmd(env *Env) *cobra.Command {
	return (&cordonOptions{env: env, cordon: true}).ofClusters(&cobra.Command{
		Use:   "cordon NAME",
		Short: "Mark a physical cluster as unschedulable",
		Long: `Mark a physical cluster as unschedulable: nothing new is scheduled to it, and what runs there stays. If the
cluster is in the setup file, the command sets unschedulable there too. Other changes of the file are not
applied.`,
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
// session then has the edited file. Other changes of the file are not applied.
func (c *compute) cordon(ctx context.Context, name string, on bool) error {
	live, err := c.registered(ctx, name)
	if err != nil {
		return err
	}
	if err := c.endDrain(ctx, live, on); err != nil {
		return err
	}
	mark := func(ctx context.Context) error { return c.mark(ctx, name, on) }
	s := c.session
	edited, err := cordonEdit(s, name, on)
	if err != nil {
		return err
	}
	if edited == s.file {
		return mark(ctx)
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
		if err := mark(ctx); err != nil {
			return clierr.Also(err, "the setup file is changed already: rerun the command to continue")
		}
		return nil
	}, nil)
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

// endDrain removes the request for a drain from a Cluster that becomes schedulable, and an old one from a Cluster that
// is only cordoned.
func (c *compute) endDrain(ctx context.Context, live *api.Cluster, cordon bool) error {
	if _, drain := live.Annotations[api.AnnotationDrain]; !drain || cordon && live.Spec.Unschedulable {
		return nil
	}
	return c.patch(ctx, live.Name,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.AnnotationDrain: nil}}})
}

// mark makes a Cluster unschedulable or schedulable, if it is not. If up has applied the Cluster, mark does it as the
// same field manager: up cannot change back what another one has set.
func (c *compute) mark(ctx context.Context, name string, on bool) error {
	live, err := c.Object(ctx, c.place(name))
	if err != nil {
		return fmt.Errorf("read Cluster %s in %s: %w", name, c.workspace, err)
	}
	if live == nil || isUnschedulable(live) == on {
		return nil
	}
	var value any // none is the default
	if on {
		value = true
	}
	if want := object.Owned(live); want != nil {
		want.SetUID(live.GetUID())
		spec, _ := want.Object["spec"].(map[string]any)
		if delete(spec, "unschedulable"); on && spec != nil {
			spec["unschedulable"] = value
		}
		live, err = c.ApplyObject(ctx, c.place(name), want, false, false)
		if err != nil {
			return fmt.Errorf("apply Cluster %s in %s: %w", name, c.workspace, err)
		}
		if isUnschedulable(live) == on {
			return nil
		}
	}
	return c.patch(ctx, name, map[string]any{"spec": map[string]any{"unschedulable": value}})
}

func isUnschedulable(cluster *unstructured.Unstructured) bool {
	on, _, _ := unstructured.NestedBool(cluster.Object, "spec", "unschedulable")
	return on
}

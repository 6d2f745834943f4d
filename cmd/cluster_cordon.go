package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

func newClusterCordonCmd(env *Env) *cobra.Command {
	return (&cordonOptions{env: env, cordon: true}).ofClusters(&cobra.Command{
		Use:   "cordon NAME",
		Short: "Mark a physical cluster as unschedulable",
		Long: `Mark a physical cluster as unschedulable: nothing new is scheduled to it, and what runs there stays. A drain
ends. If the cluster is in the setup file, the command sets unschedulable there too. Other changes of the
file are not applied.`,
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

func (o *cordonOptions) markCluster(ctx context.Context, c *computeSession) error {
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

// cordon makes a cluster unschedulable or schedulable, and ends its drain.
func (c *computeSession) cordon(ctx context.Context, name string, on bool) error {
	live, err := c.registered(ctx, name)
	if err != nil {
		return err
	}
	if err := c.EndDrain(ctx, live); err != nil {
		return err
	}
	return c.mark(ctx, live, on)
}

// mark makes a cluster unschedulable or schedulable: in the setup file, if the cluster is in it, and in kcp. The
// session then has the edited file. Other changes of the file are not applied.
func (c *computeSession) mark(ctx context.Context, live *api.Cluster, on bool) error {
	name := live.Name
	s := c.session
	edited, err := cordonEdit(s, name, on)
	if err != nil {
		return err
	}
	if edited == s.file {
		return c.Cordon(ctx, s.runtime, live, on, nil)
	}
	after, err := s.with(edited)
	if err != nil {
		return err
	}
	after.runtime = s.runtime
	c.session = after
	return c.Cordon(ctx, s.runtime, live, on, s.writeEdit(after))
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

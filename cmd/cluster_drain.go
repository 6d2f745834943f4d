package cmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

type clusterDrainOptions struct {
	dryRunFlags
	env     *Env
	setup   setupFlags
	name    string
	timeout time.Duration
}

func newClusterDrainCmd(env *Env) *cobra.Command {
	o := &clusterDrainOptions{env: env}
	c := &cobra.Command{
		Use:   "drain NAME",
		Short: "Move the workloads of a physical cluster to other clusters",
		Long: `Cordon a physical cluster, and wait until nothing is scheduled to it. Replicas move in small steps: the
cluster shrinks when their replacements are available in other clusters. Workloads with volumes, finished Jobs,
and objects that users gave the label of the cluster do not move: they have to be deleted.

Rerun the command to continue after an interruption. kcpctl cluster uncordon ends the drain.`,
		Example:           "  kcpctl cluster drain c1 --timeout 30m",
		Args:              oneArg("cluster name"),
		RunE:              withArg(&o.name, o.run),
		ValidArgsFunction: completeArgs(1, o.setup.names(env, physicalNames)),
	}
	f := c.Flags()
	o.setup.add(f)
	o.addDryRun(c, "the edit")
	addTimeout(f, &o.timeout, "wait until nothing is scheduled to the cluster")
	return c
}

func (o *clusterDrainOptions) run(ctx context.Context) error {
	if err := o.validateDryRun(); err != nil {
		return err
	}
	if o.inClient() {
		s, err := loadSetup(o.env, &o.setup)
		if err != nil {
			return err
		}
		if names := physicalNames(s); !slices.Contains(names, o.name) {
			return unknownName("cluster", o.name, names)
		}
		return printCordon(s, o.name)
	}
	c, err := openCompute(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer c.session.close()
	if o.dry() {
		if _, err := c.registered(ctx, o.name); err != nil {
			return err
		}
		o.env.printLeaves(ctx, c.Workspace, o.name, "would be moved from", c.EachObject)
		return printCordon(c.session, o.name)
	}
	if err := c.drain(ctx, o.name, o.timeout); err != nil {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err, "cluster %q is drained: nothing is scheduled to it. To use it again, run:\n  %s\n",
		o.name, o.setup.command("cluster uncordon "+o.name))
	return nil
}

// drain cordons a cluster, and waits until nothing is scheduled to it.
func (c *computeSession) drain(ctx context.Context, name string, timeout time.Duration) error {
	live, err := c.registered(ctx, name)
	if err != nil {
		return err
	}
	if err := c.mark(ctx, live, true); err != nil {
		return err
	}
	ctx, cancel := limited(ctx, timeout, "drained")
	defer cancel()
	return c.Drain(ctx, name,
		func(left string) { fmt.Fprintf(c.session.env.Streams.Err, "cluster %s: %s\n", name, left) })
}

package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// drainInterval is the time between two looks at a cluster that is drained.
const drainInterval = time.Second

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
	if err := errors.Join(o.validateDryRun(), checkTimeout(o.timeout)); err != nil {
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
		c.printLeaves(ctx, o.name, "would be moved from")
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
func (c *compute) drain(ctx context.Context, name string, timeout time.Duration) error {
	if err := c.cordon(ctx, name, true); err != nil {
		return err
	}
	drain := map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.AnnotationDrain: "true"}}}
	if err := c.patch(ctx, name, drain); err != nil {
		return err
	}
	ctx, cancel := limited(ctx, timeout, "drained")
	defer cancel()
	left, err := c.awaitDrained(ctx, name,
		func(left string) { fmt.Fprintf(c.session.env.Streams.Err, "cluster %s: %s\n", name, left) })
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		hint := fmt.Sprintf("rerun the command to continue, or run %s to end the drain",
			c.session.flags.command("cluster uncordon "+name))
		return clierr.New(clierr.NotReady, hint, "cluster %q: %w: %s", name, err, left)
	}
	return err
}

// awaitDrained waits until the controller says that nothing is scheduled to a cluster, or until the context ends. It
// reports what is left when it changes, and returns it.
func (c *compute) awaitDrained(ctx context.Context, name string, report func(left string)) (left string, _ error) {
	for {
		now, done, err := c.left(ctx, name)
		if done || err != nil {
			return now, err
		}
		if now != left {
			first, _, _ := strings.Cut(now, ". ")
			report(first)
		}
		left = now
		select {
		case <-ctx.Done():
			return left, context.Cause(ctx)
		case <-time.After(drainInterval):
		}
	}
}

// left returns what is still scheduled to a cluster, as the controller says, and whether it is nothing.
func (c *compute) left(ctx context.Context, name string) (left string, done bool, _ error) {
	cl, err := c.cluster(ctx, name)
	switch {
	case err != nil && ctx.Err() == nil:
		return err.Error(), false, nil // kcp may answer again
	case err != nil:
		return "", false, context.Cause(ctx)
	case cl == nil:
		return "", true, nil
	case !cl.Draining():
		return "", false, clierr.New(clierr.Conflict, "rerun the command",
			"cluster %q was uncordoned while it was drained", name)
	}
	s := conditionOf(cl, api.ConditionSchedulable)
	switch {
	case s.ObservedGeneration == cl.Generation && s.Reason == api.ReasonDrained:
		return "", true, nil
	case s.ObservedGeneration == cl.Generation && (s.Reason == api.ReasonDraining || s.Reason == api.ReasonRemoving):
		return s.Message, false, nil
	}
	return "waits for the controller. If it does not run, see kcpctl status", false, nil
}

package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// cordonOptions are the options of cordon and uncordon, for shards and for physical clusters.
type cordonOptions struct {
	env    *Env
	setup  setupFlags
	name   string
	cordon bool
}

func newCordonCmd(env *Env) *cobra.Command {
	return (&cordonOptions{env: env, cordon: true}).ofShards(&cobra.Command{
		Use:   "cordon NAME",
		Short: "Mark a shard as unschedulable",
		Long: `Mark a shard as unschedulable: its workspaces keep working, and kcp schedules new ones to other shards.
place/NAME stands for all shards on a cluster of spec.clusters. For the physical clusters of
spec.workloads, use kcpctl cluster cordon.`,
		Example: "  kcpctl cordon alpha\n  kcpctl cordon place/us",
	})
}

func newUncordonCmd(env *Env) *cobra.Command {
	return (&cordonOptions{env: env}).ofShards(&cobra.Command{
		Use:   "uncordon NAME",
		Short: "Mark a shard as schedulable",
		Long: "Mark a cordoned shard as schedulable again. place/NAME stands for all shards on a cluster of " +
			"spec.clusters.",
		Example: "  kcpctl uncordon alpha",
	})
}

func (o *cordonOptions) ofShards(c *cobra.Command) *cobra.Command {
	return o.of("shard name", withPlaces(shardNames, anyShard), opened(o.env, &o.setup, o.markShards), c)
}

func (o *cordonOptions) ofClusters(c *cobra.Command) *cobra.Command {
	return o.of("cluster name", physicalNames, openedCompute(o.env, &o.setup, o.markCluster), c)
}

func (o *cordonOptions) of(what string, names func(*session) []string, run func(context.Context) error,
	c *cobra.Command) *cobra.Command {
	c.Args = oneArg(what)
	c.RunE = withArg(&o.name, run)
	c.ValidArgsFunction = completeArgs(1, o.setup.names(o.env, names))
	o.setup.add(c.Flags())
	return c
}

func (o *cordonOptions) markShards(ctx context.Context, s *session) error {
	names, err := expandShards(s, []string{o.name})
	if err != nil {
		return err
	}
	root, err := s.rootShard(ctx)
	if err != nil {
		return err
	}
	shards, err := root.Shards(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := o.mark(ctx, s, root, shards, name); err != nil {
			return err
		}
	}
	return nil
}

func (o *cordonOptions) mark(
	ctx context.Context, s *session, root *kcp.Client, shards []kcp.Shard, name string,
) error {
	at := slices.IndexFunc(shards, func(sh kcp.Shard) bool { return sh.Name == name })
	if at < 0 {
		names := mapped(shards, func(sh kcp.Shard) string { return sh.Name })
		return unregistered(s, name, names)
	}
	state := "uncordoned: kcp schedules new workspaces to it"
	if o.cordon {
		state = "cordoned: kcp schedules no new workspaces to it"
	}
	if shards[at].Cordoned == o.cordon {
		fmt.Fprintf(o.env.Streams.Err, "shard %q is already %s.\n", name, state)
		return nil
	}
	if err := root.Cordon(ctx, name, o.cordon); err != nil {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err, "shard %q is now %s.\n", name, state)
	return nil
}

// unregistered is the error for a shard that kcp does not have: the setup may have it, and kcp may still be starting.
func unregistered(s *session, name string, registered []string) error {
	if slices.Contains(shardNames(s), name) && !slices.Contains(registered, name) {
		return clierr.New(clierr.Failed, s.flags.command("status")+" shows whether it starts, and what to do next",
			"shard %q is not registered in kcp yet", name)
	}
	return unknownName("shard", name, registered)
}

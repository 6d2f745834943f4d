package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/kcp"
)

type cordonOptions struct {
	env    *Env
	setup  setupFlags
	name   string
	cordon bool
}

func newCordonCmd(env *Env) *cobra.Command {
	return newCordonLikeCmd(&cordonOptions{env: env, cordon: true}, &cobra.Command{
		Use:     "cordon NAME",
		Short:   "Mark a shard as unschedulable",
		Long:    "Cordon marks a shard as unschedulable: its workspaces keep working, and kcp schedules new ones to other shards.",
		Example: "  kcpctl cordon alpha",
	})
}

func newUncordonCmd(env *Env) *cobra.Command {
	return newCordonLikeCmd(&cordonOptions{env: env}, &cobra.Command{
		Use:     "uncordon NAME",
		Short:   "Mark a shard as schedulable",
		Long:    "Uncordon marks a cordoned shard as schedulable again.",
		Example: "  kcpctl uncordon alpha",
	})
}

// newCordonLikeCmd completes the commands cordon and uncordon.
func newCordonLikeCmd(o *cordonOptions, c *cobra.Command) *cobra.Command {
	c.Args = oneArg("shard name")
	c.RunE = func(c *cobra.Command, args []string) error {
		o.name = args[0]
		return o.run(c.Context())
	}
	c.ValidArgsFunction = completeArgs(1, o.setup.names(o.env, shardNames))
	o.setup.add(c.Flags())
	return c
}

func (o *cordonOptions) run(ctx context.Context) error {
	s, err := openSetup(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	root, err := s.rootShard(ctx)
	if err != nil {
		return err
	}
	shards, err := root.Shards(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(shards, func(sh kcp.Shard) bool { return sh.Name == o.name })
	if at < 0 {
		var names []string
		for _, sh := range shards {
			names = append(names, sh.Name)
		}
		return unknownName("shard", o.name, names)
	}
	state := "uncordoned: kcp schedules new workspaces to it"
	if o.cordon {
		state = "cordoned: kcp schedules no new workspaces to it"
	}
	if shards[at].Cordoned == o.cordon {
		fmt.Fprintf(o.env.Streams.Err, "shard %q is already %s.\n", o.name, state)
		return nil
	}
	if err := root.Cordon(ctx, o.name, o.cordon); err != nil {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err, "shard %q is now %s.\n", o.name, state)
	return nil
}

package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/run"
)

type cordonOptions struct {
	setupOptions
	name string
	on   bool
}

func newCordonCmd(g *globalOptions) *cobra.Command {
	return cordonCmd(g, true, "cordon", "Keep new workspaces off a shard",
		"Cordon marks a shard as unschedulable: workspaces that are there stay and work, new ones go to other shards.")
}

func newUncordonCmd(g *globalOptions) *cobra.Command {
	return cordonCmd(g, false, "uncordon", "Let new workspaces on a shard again", "Uncordon undoes cordon.")
}

func cordonCmd(g *globalOptions, on bool, name, short, long string) *cobra.Command {
	o := &cordonOptions{setupOptions: setupOptions{globalOptions: g}, on: on}
	c := &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Long:    long,
		Example: "  kcpctl " + name + " alpha",
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.name, err = oneArg(args, "shard name"); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	c.ValidArgsFunction = completeArgs(1, o.fromFile(allShards))
	o.addFlags(c.Flags())
	return c
}

func (o *cordonOptions) run(ctx context.Context) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	return s.askRoot(ctx, func(_ run.Runtime, root *kcp.Client) error {
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
		state := map[bool]string{true: "cordoned: it gets no new workspaces", false: "open: it gets new workspaces"}[o.on]
		if shards[at].Cordoned == o.on {
			fmt.Fprintf(o.Streams.Err, "shard %q is already %s.\n", o.name, state)
			return nil
		}
		if err := root.Cordon(ctx, o.name, o.on); err != nil {
			return err
		}
		fmt.Fprintf(o.Streams.Err, "shard %q is %s.\n", o.name, state)
		return nil
	})
}

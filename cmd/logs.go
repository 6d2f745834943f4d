package cmd

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type logsOptions struct {
	setupOptions
	run.LogOptions
}

func newLogsCmd(g *globalOptions) *cobra.Command {
	o := &logsOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:     "logs COMPONENT",
		Short:   "Print the logs of a component",
		Example: "  kcpctl logs shard/alpha -f",
		Args:    maxArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.run(c.Context(), args)
		},
	}
	f := c.Flags()
	o.addFlagsWith(f, "") // -f follows, as in kubectl
	f.BoolVarP(&o.Follow, "follow", "f", false, "wait for more")
	f.BoolVarP(&o.Previous, "previous", "p", false, "of the container that ran before")
	f.Int64Var(&o.Tail, "tail", 0, "only so many last lines, 0 for all")
	return c
}

func (o *logsOptions) run(ctx context.Context, args []string) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	c, err := s.component(args)
	if err != nil {
		return err
	}
	rt, err := s.open(s.note)
	if err != nil {
		return err
	}
	defer rt.Close()
	return rt.Logs(ctx, c, o.LogOptions, o.Streams.Out)
}

// component finds the one component that an argument names.
func (s *session) component(args []string) (*topology.Component, error) {
	var known []string
	for _, c := range s.Topology.Components {
		if c.Kind != topology.Base && c.Kind != topology.Kubeconfig {
			known = append(known, string(c.ID()))
		}
	}
	if len(args) == 1 && slices.Contains(known, args[0]) {
		return s.Topology.Component(topology.ID(args[0])), nil
	}
	if len(args) == 0 {
		return nil, clierr.New(clierr.BadInput, oneOf(known), "name a component")
	}
	return nil, clierr.New(clierr.BadInput, oneOf(known), "there is no component %q", args[0])
}

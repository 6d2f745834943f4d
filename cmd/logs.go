package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/run"
)

type logsOptions struct {
	setupOptions
	run.LogOptions
}

func newLogsCmd(g *globalOptions) *cobra.Command {
	o := &logsOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "logs COMPONENT",
		Short: "Print the logs of a component",
		Long: `Logs prints the logs of all containers of a component's pods, or of its process on this machine. Where there are several,
each line begins with its pod and container. With -f it goes on until Ctrl-C, also with pods and processes that start
meanwhile, as in a rolling restart.`,
		Example:           "  kcpctl logs shard/alpha -f",
		Args:              maxArgs(1),
		ValidArgsFunction: completeArgs(1, o.fromFile(theComponents)),
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
	if len(args) == 0 {
		return clierr.New(clierr.BadInput, oneOf(theComponents(s.File, s.Topology)), "name a component")
	}
	c, err := s.component(args[0], theComponents)
	if err != nil {
		return err
	}
	rt, err := s.open()
	if err != nil {
		return err
	}
	defer rt.Close()
	return rt.Logs(ctx, c, o.LogOptions, o.Streams.Out)
}

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
	env       *Env
	setup     setupFlags
	component string
	logs      run.LogOptions
}

func newLogsCmd(env *Env) *cobra.Command {
	o := &logsOptions{env: env}
	c := &cobra.Command{
		Use:   "logs COMPONENT",
		Short: "Print the logs of a component",
		Long: `Logs prints the logs of all containers in a component's pods, or of its process on this machine. If
there is more than one container, each line begins with its pod and container. -f follows the logs until
you press Ctrl-C, including those of pods and processes that start later, as in a rolling update.`,
		Example: "  kcpctl logs shard/alpha -f",
		Args:    maxArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.component = args[0]
			}
			return o.run(c.Context())
		},
		ValidArgsFunction: completeArgs(1, o.setup.names(env, componentIDs)),
	}
	f := c.Flags()
	o.setup.addWithShorthand(f, "") // -f follows, as in kubectl
	f.BoolVarP(&o.logs.Follow, "follow", "f", false, "follow the logs")
	f.BoolVarP(&o.logs.Previous, "previous", "p", false, "print the logs of the previous container")
	f.Int64Var(&o.logs.Tail, "tail", 0, "print only this many of the last lines (0 means all)")
	return c
}

func (o *logsOptions) run(ctx context.Context) error {
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	known := componentIDs(s)
	switch {
	case o.component == "":
		return clierr.New(clierr.BadInput, oneOf(known), "a component is required")
	case !slices.Contains(known, o.component):
		return unknownName("component", o.component, known)
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	return s.runtime.Logs(ctx, s.topology.Component(topology.ID(o.component)), o.logs, o.env.Streams.Out)
}

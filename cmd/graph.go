package cmd

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/graph"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type graphOptions struct {
	setupOptions
	output string
	live   bool
}

func newGraphCmd(g *globalOptions) *cobra.Command {
	o := &graphOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "graph",
		Short: "Draw the setup: components, URLs, placement, and with --live their state",
		Example: `  kcpctl graph -o svg > kcp.svg
  kcpctl graph -o mermaid --live`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c.Flags())
	addOutput(c, &o.output, "text", "text", "mermaid", "dot", "svg")
	c.Flags().BoolVar(&o.live, "live", false, "ask what runs, and show which components are ready")
	return c
}

func (o *graphOptions) run(ctx context.Context) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	var states map[topology.ID]graph.State
	if o.live {
		if states, err = s.states(ctx); err != nil {
			return err
		}
	}
	g := graph.New(s.Topology, states)
	draw := map[string]func() string{"text": g.Text, "mermaid": g.Mermaid, "dot": g.DOT, "svg": g.SVG}[o.output]
	_, err = io.WriteString(o.Streams.Out, draw())
	return err
}

// states asks the runtime which components are ready.
func (s *session) states(ctx context.Context) (map[topology.ID]graph.State, error) {
	rt, err := s.open()
	if err != nil {
		return nil, err
	}
	defer rt.Close()
	states := map[topology.ID]graph.State{}
	for _, c := range s.Topology.Components {
		st, err := rt.State(ctx, c)
		if err != nil {
			return nil, err
		}
		states[c.ID()] = graph.NotReady
		if st.Ready {
			states[c.ID()] = graph.Ready
		}
	}
	return states, nil
}

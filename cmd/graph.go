package cmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/graph"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

type graphOptions struct {
	env    *Env
	setup  setupFlags
	output string
	live   bool
	all    bool
}

func newGraphCmd(env *Env) *cobra.Command {
	o := &graphOptions{env: env}
	c := &cobra.Command{
		Use:   "graph",
		Short: "Draw the components of the setup, their URLs and placement",
		Long: `Draw the components of the setup, with their URLs and placement, as text or as a diagram. With --live,
also show which components are ready. Many components that differ only in their name are drawn as
one; --all draws each.`,
		Example: `  kcpctl graph -o svg > kcp.svg
  kcpctl graph -o mermaid --live`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	o.setup.add(c.Flags())
	addAll(c.Flags(), &o.all, "component", "connections")
	addOutput(c, &o.output, "text", "text", "mermaid", "dot", "svg")
	c.Flags().BoolVar(&o.live, "live", false, "show which components are ready")
	return c
}

func (o *graphOptions) run(ctx context.Context) error {
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	var states map[topology.ID]graph.State
	if o.live {
		if states, err = o.states(ctx, s); err != nil {
			return err
		}
	}
	g := graph.New(s.topology, states)
	if !o.all {
		g = g.Fold()
	}
	draw := map[string]func() string{"text": g.Text, "mermaid": g.Mermaid, "dot": g.DOT, "svg": g.SVG}[o.output]
	if o.output != "text" {
		_, err = io.WriteString(o.env.Streams.Out, draw())
		return err
	}
	for line := range strings.Lines(draw()) {
		text := strings.TrimLeft(line, " ")
		fmt.Fprintln(o.env.Streams.Out, line[:len(line)-len(text)]+o.env.Streams.Out.Text(text))
	}
	return nil
}

// states queries which components are ready.
func (o *graphOptions) states(ctx context.Context, s *session) (map[topology.ID]graph.State, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	defer s.close()
	lost, err := s.leaveOut(ctx)
	if err != nil {
		return nil, err
	}
	states := map[topology.ID]graph.State{}
	for _, c := range s.topology.Components {
		if _, unknown := plan.UnreachableIn(lost, c.Cluster.Name); unknown {
			continue
		}
		st, err := s.runtime.State(ctx, c)
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

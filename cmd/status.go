package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/status"
	"github.com/kcpctl/kcpctl/internal/ui"
)

type statusOptions struct {
	setupOptions
	output string
}

func newStatusCmd(g *globalOptions) *cobra.Command {
	o := &statusOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the components, and why they are not ready",
		Long:  "Status shows the components, what runs, and why it is not ready. It exits with 3 if anything is not ready.",
		Args:  noArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c.Flags())
	c.Flags().StringVarP(&o.output, "output", "o", "", "json or yaml")
	return c
}

func (o *statusOptions) run(ctx context.Context) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	rt, err := s.open(s.note)
	if err != nil {
		return err
	}
	defer rt.Close()
	st, err := status.Collect(ctx, s.Topology, rt, o.Now())
	if err != nil {
		return err
	}
	if err := o.print(st); err != nil {
		return err
	}
	if !st.Ready {
		return silent(clierr.NotReady)
	}
	return nil
}

func (o *statusOptions) print(st *status.Status) error {
	var out []byte
	var err error
	switch o.output {
	case "":
		o.Streams.Out.Tree(o.tree(st))
		return nil
	case "json":
		if out, err = json.MarshalIndent(st, "", "  "); err == nil {
			out = append(out, '\n')
		}
	case "yaml":
		out, err = yaml.Marshal(st)
	default:
		return clierr.New(clierr.BadInput, "use -o json or -o yaml", "unknown output format %q", o.output)
	}
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	_, err = o.Streams.Out.Write(out)
	return err
}

func (o *statusOptions) tree(st *status.Status) ui.Node {
	root := ui.Node{Cells: []string{"kcp " + st.Name, "", st.Version, o.word(st.Ready), "", st.URL}}
	for _, c := range st.Components {
		age := ""
		if !c.Since.IsZero() {
			age = ui.Age(o.Now().Sub(c.Since))
		}
		root.Children = append(root.Children, ui.Node{Cells: []string{
			string(c.ID), fmt.Sprintf("%d/%d", c.ReadyReplicas, c.Replicas), c.Version, o.word(c.Ready), age, note(c),
		}})
	}
	if st.Problem != "" {
		root.Children = append(root.Children, ui.Node{Cells: []string{o.Streams.Out.Yellow(st.Problem)}})
	}
	if !st.NextExpiry.IsZero() {
		root.Children = append(root.Children, ui.Node{Cells: []string{fmt.Sprintf("first certificate to expire: %s on %s (in %s)",
			st.NextExpiryName, st.NextExpiry.UTC().Format(time.DateOnly), ui.Age(st.NextExpiry.Sub(o.Now())))}})
	}
	return root
}

func (o *statusOptions) word(ready bool) string {
	if ready {
		return o.Streams.Out.Green("Ready")
	}
	return o.Streams.Out.Red("NotReady")
}

// note is what is worth saying of a component.
func note(c status.Component) string {
	n := c.Reason
	if c.Registered != nil && !*c.Registered {
		n = cmp.Or(n, "not registered with the root shard")
	}
	if c.Restarts > 0 {
		n = cmp.Or(n, "ready again") + fmt.Sprintf(", %d restarts", c.Restarts)
	}
	return n
}

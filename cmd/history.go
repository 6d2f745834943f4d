package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/ui"
)

type historyOptions struct {
	setupOptions
	output   string
	revision int
}

func newHistoryCmd(g *globalOptions) *cobra.Command {
	o := &historyOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "history",
		Short: "List the setups that were applied, or print one",
		Example: `  kcpctl history
  kcpctl history --revision 3 > before.yaml`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c.Flags())
	c.Flags().StringVarP(&o.output, "output", "o", "", "json")
	c.Flags().IntVar(&o.revision, "revision", 0, "print the setup of this revision")
	return c
}

func (o *historyOptions) run(ctx context.Context) error {
	s, rt, err := o.attach()
	if err != nil {
		return err
	}
	defer rt.Close()
	if o.revision != 0 {
		if err := s.goBackTo(ctx, rt, o.revision); err != nil {
			return err
		}
		text, err := setup.Marshal(s.File.Setup)
		if err != nil {
			return err
		}
		_, err = o.Streams.Out.Write(text)
		return err
	}
	history, err := rt.History(ctx)
	if err != nil {
		return err
	}
	switch o.output {
	case "":
	case "json":
		enc := json.NewEncoder(o.Streams.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(history)
	default:
		return clierr.New(clierr.BadInput, "use -o json", "unknown output format %q", o.output)
	}
	if len(history) == 0 {
		fmt.Fprintf(o.Streams.Err, "kcp %q was never applied to %s.\n", s.Topology.Name, rt.Where())
		return nil
	}
	var rows [][]string
	for _, r := range slices.Backward(history) {
		rows = append(rows, []string{strconv.Itoa(r.Number), r.Time.UTC().Format(time.RFC3339), r.User, r.Version})
	}
	ui.Table(o.Streams.Out, []string{"REVISION", "APPLIED", "BY", "KCPCTL"}, rows...)
	return nil
}

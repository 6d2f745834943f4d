package cmd

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/diff"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
)

type diffOptions struct {
	setupOptions
	output   string
	revision int
}

func newDiffCmd(g *globalOptions) *cobra.Command {
	o := &diffOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "diff",
		Short: "Show what up would change, by path",
		Long: `Diff shows what up would change: the objects, and in each the paths that differ with their values before and after.
Secrets are masked; of certificates it shows subject, issuer, names and end. What others changed since the last up is
marked as drift, with the field manager that did it.

Exit codes: 0 no differences, 1 differences, 2 bad flags or setup file.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c.Flags())
	c.Flags().StringVarP(&o.output, "output", "o", "", "unified or json")
	c.Flags().IntVar(&o.revision, "revision", 0, "what going back to this revision of kcpctl history would change")
	return c
}

func (o *diffOptions) run(ctx context.Context) error {
	s, rt, err := o.attach()
	if err != nil {
		return err
	}
	defer rt.Close()
	if o.revision != 0 {
		if err := s.goBackTo(ctx, rt, o.revision); err != nil {
			return err
		}
	}
	p, drift, err := run.Compare(ctx, s.Topology, rt, o.Now())
	if err != nil {
		return err
	}
	entries := diff.Entries(p, s.Topology.Name, drift)
	if err := o.print(p, entries); err != nil {
		return err
	}
	if len(entries) > 0 {
		return silent(clierr.Failed)
	}
	return nil
}

// goBackTo puts an earlier setup in the place of the file's.
func (s *session) goBackTo(ctx context.Context, rt run.Runtime, number int) error {
	history, err := rt.History(ctx)
	if err != nil {
		return err
	}
	for _, r := range history {
		if r.Number != number {
			continue
		}
		f, err := setup.Parse(fmt.Sprintf("revision %d", number), r.Setup)
		if err != nil {
			return err
		}
		s.File = f
		if s.layout != nil {
			s.Topology = topology.BuildLocal(f.Setup, s.layout.Topology())
			return nil
		}
		s.Topology = topology.Build(f.Setup)
		return nil
	}
	return clierr.New(clierr.BadInput, "kcpctl history lists those that are remembered", "there is no revision %d", number)
}

func (o *diffOptions) print(p *plan.Plan, entries []diff.Entry) error {
	out := o.Streams.Out
	switch o.output {
	case "":
		ui.PrintDiff(out, entries)
		if len(entries) > 0 {
			fmt.Fprintf(out, "\n%s\n", p.Summary())
		}
		return nil
	case "unified":
		for _, e := range entries {
			text, err := e.Unified()
			if err != nil {
				return err
			}
			fmt.Fprint(out, text)
		}
		return nil
	case "json":
		if entries == nil {
			entries = []diff.Entry{}
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(entries)
	}
	return clierr.New(clierr.BadInput, "use -o unified or -o json", "unknown output format %q", o.output)
}

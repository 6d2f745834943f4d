package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/diff"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// outputUnified is the value of -o for differences that patch understands.
const outputUnified = "unified"

type diffOptions struct {
	revisionOptions
	output string
}

func newDiffCmd(g *globalOptions) *cobra.Command {
	o := &diffOptions{revisionOptions: revisionOptions{setupOptions: setupOptions{globalOptions: g}}}
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
	o.addRevisionFlags(c.Flags(), "what going back to this revision of kcpctl history would change")
	addOutput(c, &o.output, "", append([]string{outputUnified}, forPrograms()...)...)
	return c
}

func (o *diffOptions) run(ctx context.Context) error {
	s, rt, err := o.attachTo(ctx)
	if err != nil {
		return err
	}
	defer rt.Close()
	p, drift, err := run.Compare(ctx, s.Topology, rt, o.Now())
	if err != nil {
		return err
	}
	entries := diff.Entries(p, s.Topology.Name, drift)
	if err := o.print(s, p, entries); err != nil {
		return err
	}
	if len(entries) > 0 {
		return silent(clierr.Failed)
	}
	return nil
}

// differences are the result for programs.
type differences struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Name       string       `json:"name"`
	Items      []diff.Entry `json:"items"`
}

func (o *diffOptions) print(s *session, p *plan.Plan, entries []diff.Entry) error {
	out := o.Streams.Out
	switch o.output {
	case "":
		ui.PrintDiff(out, entries)
		if len(entries) > 0 {
			fmt.Fprintf(out, "\n%s\n", p.Summary())
		}
		return nil
	case outputUnified:
		for _, e := range entries {
			text, err := e.Unified()
			if err != nil {
				return err
			}
			fmt.Fprint(out, text)
		}
		return nil
	}
	return encode(out, o.output, differences{
		APIVersion: v1alpha1.APIVersion, Kind: "DifferenceList", Name: s.Topology.Name, Items: append([]diff.Entry{}, entries...),
	})
}

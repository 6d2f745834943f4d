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
	env      *Env
	setup    setupFlags
	revision int
	output   string
	all      bool
}

func newDiffCmd(env *Env) *cobra.Command {
	o := &diffOptions{env: env}
	c := &cobra.Command{
		Use:   "diff",
		Short: "Show what up would change, by path",
		Long: `Diff shows which objects up would change and, for each, the paths that differ with their previous and
new values. Values of Secrets are masked; for certificates it shows subject, issuer, names and expiry.
What others have changed since the last up is marked as drift, with its field manager. Many objects with the
same differences are shown as one; --all shows each.

Exit codes: 0 no differences, 1 differences or a cluster that cannot be reached, 2 invalid flags or setup file.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.setup.add(c.Flags())
	addAll(c.Flags(), &o.all, "object", "differences")
	c.Flags().IntVar(&o.revision, "revision", 0, "show what applying this revision of kcpctl history would change")
	addOutput(c, &o.output, "", append([]string{outputUnified}, machineFormats...)...)
	return c
}

func (o *diffOptions) run(ctx context.Context) error {
	s, err := openSetup(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	if o.revision != 0 {
		if err := s.useRevision(ctx, o.revision); err != nil {
			return err
		}
	}
	if _, err := s.leaveOut(ctx); err != nil {
		return err
	}
	p, drift, err := run.Compare(ctx, s.topology, s.runtime, o.env.Now())
	if err != nil {
		return err
	}
	for _, remark := range run.Kept(p) {
		o.env.note(remark)
	}
	entries := diff.Entries(p, s.topology.Name, drift)
	if err := o.print(s, p, entries); err != nil {
		return err
	}
	for _, l := range p.Unreachable {
		return clierr.New(clierr.Failed, clierr.Hint(l.Err), "the differences on cluster %s are unknown: %w", l.Cluster, l.Err)
	}
	if p.NoAnswer != nil {
		return clierr.New(clierr.Failed, clierr.Hint(p.NoAnswer), "the differences in workspaces are unknown: %w", p.NoAnswer)
	}
	if len(entries) > 0 {
		return silent(clierr.Failed)
	}
	return nil
}

// differenceList is the result in machineFormats.
type differenceList struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Name       string       `json:"name"`
	Items      []diff.Entry `json:"items"`
	// Unreachable are the clusters whose objects are unknown.
	Unreachable []plan.Unreachable `json:"unreachable,omitempty"`
	// WorkspacesUnknown is why the objects in workspaces are unknown.
	WorkspacesUnknown string `json:"workspacesUnknown,omitempty"`
}

func (o *diffOptions) print(s *session, p *plan.Plan, entries []diff.Entry) error {
	out := o.env.Streams.Out
	switch o.output {
	case "":
		ui.PrintDiff(out, entries, o.all)
		if len(entries) > 0 || p.Count(plan.Unknown) > 0 {
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
	list := differenceList{
		APIVersion: v1alpha1.APIVersion, Kind: "DifferenceList", Name: s.topology.Name,
		Items: append([]diff.Entry{}, entries...), Unreachable: p.Unreachable,
	}
	if p.NoAnswer != nil {
		list.WorkspacesUnknown = p.NoAnswer.Error()
	}
	return encode(out, o.output, list)
}

package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/diff"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// The values of -o besides machineFormats: differences that patch understands, and a comment on a pull request.
const (
	outputUnified  = "unified"
	outputMarkdown = "markdown"
)

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
		Long: `Show which objects up would change and, for each, the paths that differ with their previous and new
values. Values of Secrets are masked; for certificates it shows subject, issuer, names and expiry.
What others have changed since the last up is marked as drift, with its field manager. Many objects with the
same differences are shown as one; --all shows each.

What up would refuse, because it loses data or trust, is shown under the objects, with the next step. With
-o markdown, the output is a comment on a pull request.

Exit codes: 0 no differences, 1 differences, or up refuses, 2 invalid flags or setup file, 5 the differences
are unknown, such as on a cluster that cannot be reached.`,
		Example: `  kcpctl diff
  kcpctl diff -o unified
  kcpctl diff -o markdown > comment.md
  kcpctl diff --revision 3`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return orUnknown(opened(env, &o.setup, o.run)(c.Context()))
		},
	}
	o.setup.addComparing(c.Flags())
	addAll(c.Flags(), &o.all, "object", "differences")
	c.Flags().IntVar(&o.revision, "revision", 0, "show what applying this revision of kcpctl history would change")
	completeFlag(c, "revision", o.setup.names(env, revisions))
	addOutput(c, &o.output, "", append([]string{outputUnified, outputMarkdown}, machineFormats...)...)
	return c
}

func (o *diffOptions) run(ctx context.Context, s *session) error {
	if o.revision != 0 {
		r, err := s.revision(ctx, o.revision)
		if err != nil {
			return err
		}
		if err := s.useRevision(r); err != nil {
			return err
		}
	}
	lost, err := s.leaveOut(ctx)
	if err != nil {
		return err
	}
	up, err := upRun{}.of(s)
	if err != nil {
		return err
	}
	c, err := up.Compare(ctx, lost)
	if err != nil {
		return err
	}
	for _, remark := range deploy.Kept(c.Plan) {
		o.env.note(remark)
	}
	d := ui.Difference{
		Name: s.topology.Name, Summary: c.Plan.Summary(), Entries: diff.Entries(c.Plan, s.topology.Name, c.Drift),
		Refused: o.env.withNextSteps(c.Refused), Unknown: unknownDifferences(c.Plan),
	}
	if err := o.print(c.Plan, d); err != nil {
		return err
	}
	if d.Unknown == nil && (len(d.Entries) > 0 || d.Refused != nil) {
		return silent(clierr.Failed)
	}
	if d.Unknown == nil {
		fmt.Fprintf(o.env.Streams.Err, "kcp %q: no differences.\n", d.Name)
	}
	return d.Unknown
}

// unknownDifferences is why some differences are not known, or nil.
func unknownDifferences(p *plan.Plan) error {
	for _, l := range p.Unreachable {
		return clierr.New(clierr.Unknown, "", "the differences on cluster %s are unknown: %w", l.Cluster, l.Err)
	}
	if p.NoAnswer != nil {
		return clierr.New(clierr.Unknown, "", "the differences in workspaces are unknown: %w", p.NoAnswer)
	}
	return nil
}

// differenceList is the result in machineFormats.
type differenceList struct {
	list[diff.Entry]
	// Refusals are why up would refuse the change.
	Refusals []clierr.Problem `json:"refusals,omitempty"`
	// Unreachable are the clusters whose objects are unknown.
	Unreachable []plan.Unreachable `json:"unreachable,omitempty"`
	// WorkspacesUnknown is why the objects in workspaces are unknown.
	WorkspacesUnknown string `json:"workspacesUnknown,omitempty"`
}

func (o *diffOptions) print(p *plan.Plan, d ui.Difference) error {
	out := o.env.Streams.Out
	switch o.output {
	case "":
		ui.PrintDiff(out, d.Entries, o.all)
		ui.PrintRefusals(out, d.Refused)
		if len(d.Entries) > 0 || d.Refused != nil || p.Count(plan.Unknown) > 0 {
			fmt.Fprintf(out, "\n%s\n", d.Summary)
		}
		return nil
	case outputUnified:
		for _, e := range d.Entries {
			text, err := e.Unified()
			if err != nil {
				return err
			}
			fmt.Fprint(out, text)
		}
		ui.PrintRefusals(o.env.Streams.Err, d.Refused) // patch does not understand them
		return nil
	case outputMarkdown:
		return ui.PrintMarkdown(out, d)
	}
	all := differenceList{
		list: listOf("DifferenceList", d.Name, d.Entries), Refusals: clierr.Problems(d.Refused),
		Unreachable: p.Unreachable,
	}
	if p.NoAnswer != nil {
		all.WorkspacesUnknown = p.NoAnswer.Error()
	}
	return encode(out, o.output, all)
}

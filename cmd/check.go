package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// checkPause is how long kcpctl check --wait waits between two rounds.
const checkPause = 2 * time.Second

// outputTable is the default value of -o, outputWide is the table with all causes.
const (
	outputTable = "table"
	outputWide  = "wide"
)

// mostCauses is how many lines of causes a check has in the table. A setup with a hundred shards can have hundreds.
const mostCauses = 10

type checkOptions struct {
	env    *Env
	setup  setupFlags
	pre    bool
	output string
	wait   time.Duration
}

func newCheckCmd(env *Env) *cobra.Command {
	o := &checkOptions{env: env}
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a running setup, or with --pre the prerequisites of up",
		Long: `Inspect a running setup: components, every connection between them, registration of shards, the cache,
certificates. With --pre, check the prerequisites of up, which up also checks itself.

Each check is one line, followed by the causes if it did not pass. Causes that are the same for many
components are one line, and so are the checks of a category that are skipped for the same reason;
-o wide prints them all.

Every check has an ID, and a failed one reports the cause and the fix. kcpctl explain ID explains a check.

Exit codes: 0 all passed or only warnings, 1 a check failed, 2 invalid flags or setup file, 5 no check could run.`,
		Example: `  kcpctl check --pre
  kcpctl check --wait 5m
  kcpctl explain KCP014`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return orUnknown(opened(env, &o.setup, o.run)(c.Context()))
		},
	}
	o.setup.addComparing(c.Flags())
	c.Flags().BoolVar(&o.pre, "pre", false, "check the prerequisites of up, before anything is deployed")
	addOutput(c, &o.output, outputTable, append([]string{outputTable, outputWide, outputJUnit}, machineFormats...)...)
	addDuration(c.Flags(), &o.wait, "wait", 0, "repeat the checks until none fails, for at most this time")
	return c
}

func (o *checkOptions) run(ctx context.Context, s *session) error {
	s.noteRuns(ctx)
	until := o.env.Now().Add(o.wait)
	for {
		r, err := o.round(ctx, s)
		last := !o.env.Now().Before(until)
		switch {
		case err != nil && (last || ctx.Err() != nil):
			return err
		case err != nil:
			o.env.note("waiting: " + firstLine(err.Error()))
		case r.Passed || last:
			return o.finish(r)
		default:
			o.env.note("waiting: " + r.Summary())
		}
		if err := poll.Pause(ctx, checkPause); err != nil {
			return err
		}
	}
}

func (o *checkOptions) round(ctx context.Context, s *session) (*check.Report, error) {
	subject := &check.Subject{Topology: s.topology, Runtime: s.runtime, Now: o.env.Now}
	defer subject.Close()
	s.runtime.LeaveOut(s.runtime.Unreachable(ctx)) // the checks report them
	if o.pre {
		var err error
		subject.Objects, err = o.objects(ctx, s)
		if err != nil {
			return nil, err
		}
		return o.withNextSteps(check.Run(ctx, subject, check.Preflight)), nil
	}
	if err := subject.Prepare(ctx); err != nil {
		return nil, err
	}
	return o.withNextSteps(check.Run(ctx, subject, check.Health)), nil
}

func (o *checkOptions) withNextSteps(r *check.Report) *check.Report {
	for i := range r.Results {
		r.Results[i].Fix = o.env.nextSteps(r.Results[i].Fix)
	}
	return r
}

// objects renders what up would apply. If the PKI cannot be read, which another check reports, new certificates replace
// it: checks look at pods, not at Secrets.
func (o *checkOptions) objects(ctx context.Context, s *session) ([]render.Object, error) {
	options := deploy.DesiredOptions{Now: o.env.Now()}
	desired, err := deploy.LoadDesired(ctx, s.topology, s.store(), options)
	if errors.As(err, new(*deploy.LoadError)) {
		desired, err = deploy.LoadDesired(ctx, s.topology, nil, options)
	}
	if err != nil {
		return nil, err
	}
	return desired.Objects()
}

func (o *checkOptions) finish(r *check.Report) error {
	if err := o.print(r); err != nil {
		return err
	}
	if !r.Passed {
		if here := o.env.session.isHere(); here != "" {
			o.env.note(here)
		}
		return silent(clierr.Failed)
	}
	return nil
}

func (o *checkOptions) print(r *check.Report) error {
	switch o.output {
	case outputTable, outputWide:
		printReport(o.env.Streams.Out, r, o.output == outputWide)
		return nil
	case outputJUnit:
		return printJUnit(o.env.Streams.Out, r)
	}
	return encode(o.env.Streams.Out, o.output, r)
}

// printReport prints results under their categories, as linkerd check does: with all causes, or with the first ones.
func printReport(w *ui.Stream, r *check.Report, all bool) {
	category := ""
	for i, res := range r.Results {
		if res.Category != category {
			category = res.Category
			fmt.Fprintf(w, "%s\n", w.Bold(category))
		}
		if res.Status == check.Skipped && !all {
			printSkipped(w, r.Results, i)
			continue
		}
		glyph := map[check.Status]string{check.OK: w.Check(), check.Warn: w.Warn(), check.Fail: w.Cross(),
			check.Skipped: w.Dot()}[res.Status]
		causes := causes(res.Cause, all)
		if res.Status == check.Skipped {
			fmt.Fprintf(w, "%s %s\n", glyph,
				w.Dim(w.Text(res.ID+" "+res.Title+" (skipped: "+strings.Join(causes, "; ")+")")))
			continue
		}
		fmt.Fprintf(w, "%s %s %s\n", glyph, w.Dim(res.ID), w.Text(res.Title))
		for _, line := range causes {
			indent := strings.Repeat(" ", min(len(line)-len(strings.TrimLeft(line, " ")), 8))
			fmt.Fprintf(w, "    %s%s\n", indent, w.Text(line))
		}
		if res.Fix != "" {
			fmt.Fprintf(w, "    %s %s\n", w.Cyan("fix:"), w.Text(res.Fix))
		}
	}
	if rows := check.Table(r.Reachability, all); len(rows) > 0 {
		fmt.Fprintf(w, "\n%s\n", w.Bold("Who reaches whom"))
		ui.Table(w, nil, rows...)
	}
	glyph := w.Check()
	if !r.Passed {
		glyph = w.Cross()
	}
	fmt.Fprintf(w, "\n%s %s\n", glyph, r.Summary())
}

// printSkipped prints one line for the checks of a category that were skipped for the same reason as a result, unless
// an earlier result has printed it.
func printSkipped(w *ui.Stream, results []check.Result, at int) {
	var ids []string
	for i, res := range results {
		if res.Status != check.Skipped || res.Category != results[at].Category || res.Cause != results[at].Cause {
			continue
		}
		if i < at {
			return
		}
		ids = append(ids, res.ID)
	}
	columns := 0
	if w.TTY {
		columns, _ = w.Size()
	}
	text := w.Text(fmt.Sprintf("%s skipped: %s", gather.Few(ids, gather.Listed, ", "),
		strings.Join(causes(results[at].Cause, false), "; ")))
	for i, line := range strings.Split(ui.Wrap(text, max(0, columns-2)), "\n") {
		glyph := w.Dot()
		if i > 0 {
			glyph = " "
		}
		fmt.Fprintf(w, "%s %s\n", glyph, w.Dim(line))
	}
}

// causes returns the lines of a cause: all, or those that are the same for many components in one line, and not too
// many.
func causes(cause string, all bool) []string {
	messages := gather.In(cause)
	if !all {
		messages = gather.Messages(messages)
	}
	var lines []string
	for line := range strings.Lines(strings.Join(messages, "\n")) {
		lines = append(lines, strings.TrimRight(line, "\n"))
	}
	if more := len(lines) - mostCauses; !all && more > 1 {
		lines = append(lines[:mostCauses], fmt.Sprintf("and %d more; -o wide prints them all", more))
	}
	return lines
}

func newExplainCmd(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [ID]",
		Short: "Explain a check: what it tests, why, and how to fix a failure",
		Long: "Show what a check of kcpctl check tests, why, and how to fix a failure. Without an ID, " +
			"list all checks.",
		Example: `  kcpctl explain
  kcpctl explain KCP014`,
		Args: maxArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				ui.Table(env.Streams.Out, []string{"ID", "CATEGORY", "TITLE"},
					mapped(check.All(), func(c check.Check) []string { return []string{c.ID, c.Category, c.Title} })...)
				return nil
			}
			c, ok := check.Find(args[0])
			if !ok {
				return unknownCheck(args[0])
			}
			w := env.Streams.Out
			fmt.Fprintf(w, "%s %s  (%s)\n\n%s\n\n%s %s\n", w.Bold(c.ID), c.Title, c.Category,
				ui.Wrap(c.Explanation, 100), w.Cyan("fix:"), c.Fix)
			return nil
		},
		ValidArgsFunction: completeArgs(1, checkIDs),
	}
}

// unknownCheck is the error for an ID that is not one of the checks.
func unknownCheck(id string) error {
	return clierr.New(clierr.BadInput, "kcpctl explain lists all checks", "there is no check %q", id)
}

package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/check"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// checkPause is how long kcpctl check --wait waits between two rounds.
const checkPause = 2 * time.Second

// outputTable is the value of -o for people.
const outputTable = "table"

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
		Short: "Check that the setup works, or with --pre that it can be brought up",
		Long: `Check looks at a running setup from all sides: components, every connection between them, registration of the shards,
the cache, certificates. With --pre it looks for what would keep up from working; up does that by itself.

Every check has an ID, says why it failed, and what to do. kcpctl explain ID says more.

Exit codes: 0 all passed or only warnings, 1 a check failed, 2 bad flags or setup file.`,
		Example: `  kcpctl check --pre
  kcpctl check --wait 5m
  kcpctl explain KCP014`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.setup.add(c.Flags())
	c.Flags().BoolVar(&o.pre, "pre", false, "check what up needs, before there is anything")
	addOutput(c, &o.output, outputTable, append([]string{outputTable}, machineFormats...)...)
	c.Flags().DurationVar(&o.wait, "wait", 0, "check again until nothing fails, at most for this long")
	return c
}

func (o *checkOptions) run(ctx context.Context) error {
	s, err := openSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	until := o.env.Now().Add(o.wait)
	for {
		r, err := o.round(ctx, s)
		if err != nil {
			return err
		}
		if r.Passed || !o.env.Now().Before(until) {
			return o.finish(r)
		}
		o.env.note("waiting: " + r.Summary())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(checkPause):
		}
	}
}

// round runs the checks once.
func (o *checkOptions) round(ctx context.Context, s *session) (*check.Report, error) {
	subject := s.subject()
	defer subject.Close()
	if o.pre {
		var err error
		subject.Objects, err = s.wouldApply(ctx)
		if err != nil {
			return nil, err
		}
		return check.Run(ctx, subject, check.Before()), nil
	}
	if err := subject.Prepare(ctx); err != nil {
		return nil, err
	}
	return check.Run(ctx, subject, check.After()), nil
}

func (s *session) subject() *check.Subject {
	return &check.Subject{Topology: s.topology, Runtime: s.runtime, Now: s.env.Now, Network: &check.System{}}
}

// wouldApply renders what up would apply. Where the PKI cannot be read, which is a check of its own, new certificates stand
// in for it: checks look at pods, not at Secrets.
func (s *session) wouldApply(ctx context.Context) ([]render.Object, error) {
	state, err := s.store().Load(ctx)
	if err != nil {
		state = &pki.State{}
	}
	res, err := pki.Ensure(s.topology, state, pki.Options{Now: s.env.Now()})
	if err != nil {
		return nil, err
	}
	return render.Objects(s.topology, res.State)
}

// preflight is how a run of up checks before it writes. Checks that are ignored only warn.
func (s *session) preflight(ignored ...string) func(context.Context, []render.Object, bool) ([]string, error) {
	return func(ctx context.Context, objects []render.Object, thorough bool) ([]string, error) {
		subject := s.subject()
		subject.Objects = objects
		checks := check.Quick()
		if thorough {
			checks = check.Rest()
		}
		r := check.Run(ctx, subject, checks)
		r.Ignore(ignored...)
		return r.Warnings(), r.Err()
	}
}

func (o *checkOptions) finish(r *check.Report) error {
	if o.output == outputTable {
		printReport(o.env.Streams.Out, r)
	} else if err := encode(o.env.Streams.Out, o.output, r); err != nil {
		return err
	}
	if !r.Passed {
		return silent(clierr.Failed)
	}
	return nil
}

// printReport prints results under their categories, as linkerd check does.
func printReport(w *ui.Stream, r *check.Report) {
	category := ""
	for _, res := range r.Results {
		if res.Category != category {
			category = res.Category
			fmt.Fprintf(w, "%s\n", w.Bold(category))
		}
		glyph := map[check.Status]string{check.OK: w.Check(), check.Warn: w.Warn(), check.Fail: w.Cross(), check.Skipped: w.Dot()}[res.Status]
		if res.Status == check.Skipped {
			fmt.Fprintf(w, "%s %s\n", glyph, w.Dim(w.Text(res.ID+" "+res.Title+" (skipped: "+strings.ReplaceAll(res.Cause, "\n", "; ")+")")))
			continue
		}
		fmt.Fprintf(w, "%s %s %s\n", glyph, w.Dim(res.ID), w.Text(res.Title))
		for line := range strings.Lines(res.Cause) {
			indent := strings.Repeat(" ", min(len(line)-len(strings.TrimLeft(line, " ")), 8))
			fmt.Fprintf(w, "    %s%s\n", indent, w.Text(line))
		}
		if res.Fix != "" {
			fmt.Fprintf(w, "    %s %s\n", w.Cyan("fix:"), w.Text(res.Fix))
		}
	}
	glyph := w.Check()
	if !r.Passed {
		glyph = w.Cross()
	}
	fmt.Fprintf(w, "\n%s %s\n", glyph, r.Summary())
}

func newExplainCmd(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [ID]",
		Short: "Say what a check looks at, why, and what to do when it fails",
		Long:  "Explain says what a check of kcpctl check looks at, why, and what to do when it fails. Without an ID it lists all checks.",
		Args:  maxArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				var rows [][]string
				for _, c := range check.All() {
					rows = append(rows, []string{c.ID, c.Category, c.Title})
				}
				ui.Table(env.Streams.Out, []string{"ID", "CATEGORY", "TITLE"}, rows...)
				return nil
			}
			c, ok := check.Find(args[0])
			if !ok {
				return unknownCheck(args[0])
			}
			w := env.Streams.Out
			fmt.Fprintf(w, "%s %s  (%s)\n\n%s\n\n%s %s\n", w.Bold(c.ID), c.Title, c.Category, ui.Wrap(c.Explanation, 100), w.Cyan("fix:"), c.Fix)
			return nil
		},
		ValidArgsFunction: completeArgs(1, checkIDs),
	}
}

// unknownCheck is the error for an ID that is not one of the checks.
func unknownCheck(id string) error {
	return clierr.New(clierr.BadInput, "kcpctl explain lists all checks", "there is no check %q", id)
}

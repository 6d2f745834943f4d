package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type historyOptions struct {
	env      *Env
	setup    setupFlags
	revision int
	full     bool
	write    bool
	dryRun   bool
	output   string
}

func newHistoryCmd(env *Env) *cobra.Command {
	o := &historyOptions{env: env}
	c := &cobra.Command{
		Use:   "history",
		Short: "List the setups that were applied, or return to one",
		Long: `List the setups that were applied, newest first. A run can be limited to some components
(--only, add-shard, remove-shard). If the setup file also had other changes at that time, ONLY lists the
components that were applied, and the clusters that were left out because they could not be reached.

--revision prints the setup file as it was applied, with its comments; with --full, the setup with all defaults.

With --write, the setup file gets the content of a revision, and the differences are printed. Comments stay where
possible, and what the file lacks becomes as it was written then. Nothing is applied: that is what up does.`,
		Example: `  kcpctl history
  kcpctl history --revision 3 > previous.yaml
  kcpctl history --revision 3 --write`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	o.setup.add(c.Flags())
	c.Flags().IntVar(&o.revision, "revision", 0, "print the setup file of this revision")
	completeFlag(c, "revision", o.setup.names(env, revisions))
	c.Flags().BoolVar(&o.full, "full", false, "with --revision: print the setup with all defaults, and no comments")
	c.Flags().BoolVar(&o.write, "write", false, "write the setup of --revision into the setup file")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "with --write: only print the differences")
	addOutput(c, &o.output, "", machineFormats...)
	requireFlag(c.Flags(), "revision", "full", "write")
	requireFlag(c.Flags(), "write", "dry-run")
	excludeFlag(c.Flags(), "write", "full", "output")
	return c
}

func (o *historyOptions) validate() error {
	if o.revision != 0 && !o.write && o.output != "" && o.output != outputYAML {
		return clierr.New(clierr.BadInput, "omit --output", "--revision prints a setup file, which is YAML")
	}
	if !o.write {
		return nil
	}
	return setup.CheckEditable(o.setup.file)
}

func (o *historyOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	s, err := openSetup(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	if o.revision != 0 {
		return o.show(ctx, s)
	}
	history, err := s.runtime.History(ctx)
	if err != nil {
		return err
	}
	s.noteRuns(ctx)
	if o.output != "" {
		return encode(o.env.Streams.Out, o.output, listOf("RevisionList", s.topology.Name, history))
	}
	if len(history) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "kcp %q was never applied to %s.\n", s.topology.Name, s.runtime.Where())
		return nil
	}
	printHistory(o.env.Streams.Out, history)
	return nil
}

// show prints the setup of a revision, the text of its file or the setup with all defaults, or writes it into the setup
// file. It prints what this kcpctl refuses, too: users correct a copy of it.
func (o *historyOptions) show(ctx context.Context, s *session) error {
	r, err := s.revision(ctx, o.revision)
	switch {
	case err != nil:
		return err
	case o.write:
		current := s.file
		if err := s.useRevision(r); err != nil {
			return err
		}
		return o.restore(s, current)
	}
	text := r.File
	if text == nil && !o.full {
		s.reporter.note(fmt.Sprintf("the file of revision %d was not kept, so this is its setup with all defaults and "+
			"without comments", r.Number))
	}
	if text == nil || o.full {
		text = r.Setup
	}
	_, err = o.env.Streams.Out.Write(text)
	return err
}

// restore writes the revision that the session uses into the setup file.
func (o *historyOptions) restore(s *session, current *setup.File) error {
	restored, kept, err := current.Restore(s.file)
	if err != nil {
		return err
	}
	s.file = current
	if restored == current {
		s.reporter.note(fmt.Sprintf("%s already has the setup of revision %d", current.Name, o.revision))
		return nil
	}
	if !o.dryRun {
		if err := current.Rewrite(o.setup.file, restored); err != nil {
			return err
		}
	}
	s.printEdit(restored)
	if !kept {
		s.reporter.note(fmt.Sprintf("%s could not be edited field by field, so it has the whole text of the "+
			"revision", current.Name))
	}
	if o.dryRun {
		return nil
	}
	s.reporter.note(fmt.Sprintf("wrote the setup of revision %d to %s; check it with %s, then run %s",
		o.revision, current.Name, s.flags.command("diff"), s.flags.command("up")))
	return nil
}

func (s *session) revision(ctx context.Context, number int) (plan.Revision, error) {
	history, err := s.runtime.History(ctx)
	if err != nil {
		return plan.Revision{}, err
	}
	at := slices.IndexFunc(history, func(r plan.Revision) bool { return r.Number == number })
	if at < 0 {
		return plan.Revision{}, clierr.New(clierr.BadInput, "to list the revisions, run "+s.flags.command("history"),
			"there is no revision %d", number)
	}
	return history[at], nil
}

// useRevision makes a setup that was applied before the setup of the session.
func (s *session) useRevision(r plan.Revision) error {
	f, err := setup.Parse(fmt.Sprintf("revision %d", r.Number), r.Setup)
	if err != nil {
		return clierr.Also(err, "another release of kcpctl has applied it: print it with "+
			s.flags.command(fmt.Sprintf("history --revision %d", r.Number))+", and correct it")
	}
	return s.use(f.As(r.File))
}

func printHistory(out *ui.Stream, history []plan.Revision) {
	var rows [][]string
	for _, r := range slices.Backward(history) {
		rows = append(rows, []string{
			strconv.Itoa(r.Number), r.Time.UTC().Format(time.RFC3339), r.User, r.Version, onlyColumn(r),
		})
	}
	ui.Table(out, []string{"REVISION", "APPLIED", "BY", "KCPCTL", "ONLY"}, rows...)
}

// maxScopeNames is how many components the table lists for a run with --only.
const maxScopeNames = 5

// onlyColumn lists the components that a revision is limited to, and the clusters that it left out; - means that the
// whole setup was applied.
func onlyColumn(r plan.Revision) string {
	if len(r.Without) > 0 {
		without := "without " + strings.Join(prefixed(placePrefix, r.Without), ",")
		if len(r.Only) == 0 {
			return without
		}
		return onlyColumn(plan.Revision{Only: r.Only}) + " " + without
	}
	only := slices.DeleteFunc(slices.Clone(r.Only),
		func(id string) bool { return topology.ID(id).Kind() == topology.Base })
	if len(only) == 0 {
		return cmp.Or(strings.Join(r.Only, ","), "-")
	}
	return gather.Few(only, maxScopeNames, ",")
}

package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/ui"
)

// editFlags are those of commands that edit the setup file, and apply what the edit changes.
type editFlags struct {
	wait           waitFlags
	dryRun         string
	forceConflicts bool
}

func (e *editFlags) add(c *cobra.Command, timeout time.Duration, until string) {
	e.wait.add(c, timeout, until)
	addDryRun(c, &e.dryRun, "the edit")
	addForceConflicts(c.Flags(), &e.forceConflicts)
}

func (e *editFlags) validate(file string) error {
	return errors.Join(checkDryRun(e.dryRun), checkTimeout(e.wait.timeout), setup.CheckEditable(file))
}

// preview prints what an edit changes in the setup file and, in a server dry run, what up would then change.
func (e *editFlags) preview(ctx context.Context, before, after *session, r upRun) error {
	out := before.env.Streams.Out
	before.printEdit(after.file)
	if e.dryRun == dryRunClient {
		return nil
	}
	if err := after.connect(ctx); err != nil {
		return err
	}
	defer after.close()
	r.wait.output, r.options.DryRun = "", true
	res, err := after.runUp(ctx, r)
	if err == nil {
		ui.PrintPlan(out, res.Plan)
	}
	return err
}

// printEdit prints what an edit changes in the setup file.
func (s *session) printEdit(edited *setup.File) {
	fmt.Fprint(s.env.Streams.Out, udiff.Unified(s.file.Name, s.file.Name, string(s.file.Data), string(edited.Data)))
}

// writeAddition returns what writes an edit that adds something into the setup file, with a message; nil if the edit changes nothing.
func (s *session) writeAddition(after *session, what string) func() error {
	write := s.writeEdit(after)
	if write == nil {
		return nil
	}
	return func() error {
		if err := write(); err != nil {
			return err
		}
		after.written = true
		after.reporter.note(fmt.Sprintf("added the %s to %s", what, after.file.Name))
		return nil
	}
}

// writeEdit returns what writes an edit into the setup file; nil if the edit changes nothing.
func (s *session) writeEdit(after *session) func() error {
	if after.file == s.file {
		return nil
	}
	return func() error { return s.file.Rewrite(s.flags.file, after.file) }
}

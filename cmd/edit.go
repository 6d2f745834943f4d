package cmd

import (
	"errors"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// applyFlags are the flags of commands that apply changes, or show what would change.
type applyFlags struct {
	dryRunFlags
	wait           waitFlags
	forceConflicts bool
}

// add adds the flags of a command that waits until something holds. A client dry run only prints something.
func (a *applyFlags) add(c *cobra.Command, until, client string) {
	a.wait.add(c, until)
	a.addDryRun(c, client)
	c.Flags().BoolVar(&a.forceConflicts, "force-conflicts", false, "take over fields that other field managers own")
}

func (a *applyFlags) validate() error {
	return a.validateDryRun()
}

// validateEdit is validate for a command that edits the setup file.
func (a *applyFlags) validateEdit(file string) error {
	return errors.Join(a.validate(), setup.CheckEditable(file))
}

func (s *session) printEdit(edited *setup.File) {
	s.env.print(udiff.Unified(s.file.Name, s.file.Name, string(s.file.Data), string(edited.Data)))
}

// writeEdit returns what writes an edit into the setup file; nil if the edit changes nothing.
func (s *session) writeEdit(after *session) func() error {
	if after.file == s.file {
		return nil
	}
	return func() error {
		err := s.file.Rewrite(s.flags.file, after.file)
		after.written = err == nil
		return err
	}
}

package cmd

import (
	"errors"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// editFlags are the flags of commands that edit the setup file, and apply what the edit changes.
type editFlags struct {
	dryRunFlags
	wait           waitFlags
	forceConflicts bool
}

func (e *editFlags) add(c *cobra.Command, until string) {
	e.wait.add(c, until)
	e.addDryRun(c, "the edit")
	addForceConflicts(c.Flags(), &e.forceConflicts)
}

func (e *editFlags) validate(file string) error {
	return errors.Join(e.validateDryRun(), checkTimeout(e.wait.timeout), setup.CheckEditable(file))
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

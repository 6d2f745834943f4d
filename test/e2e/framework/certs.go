package framework

import (
	"testing"
)

// Certs runs a command of kcpctl certs.
func (s *Setup) Certs(t *testing.T, name string, args ...string) Result {
	t.Helper()
	return s.CertsCommand(name, args...).Run(t.Context(), t)
}

// CertsCommand returns a command of kcpctl certs.
func (s *Setup) CertsCommand(name string, args ...string) Command {
	return s.subcommand("certs", name, args...)
}

// Sub runs a command of a group of commands.
func (s *Setup) Sub(t *testing.T, group, name string, args ...string) Result {
	t.Helper()
	return s.subcommand(group, name, args...).Run(t.Context(), t)
}

// subcommand returns a command of a group of commands.
func (s *Setup) subcommand(group, name string, args ...string) Command {
	cmd := s.Command(group) // GROUP --file FILE FLAG...
	cmd.Args = append(append([]string{group, name}, cmd.Args[1:]...), args...)
	return cmd
}

//go:build unix

package ui

import "golang.org/x/term"

// redraws reports whether a file is a terminal.
func redraws(fd int) bool { return term.IsTerminal(fd) }

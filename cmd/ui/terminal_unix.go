//go:build unix

package ui

import "golang.org/x/term"

func redraws(fd int) bool { return term.IsTerminal(fd) }

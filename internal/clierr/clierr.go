// Package clierr defines errors with an exit code and a hint about the next step.
package clierr

import (
	"errors"
	"fmt"
	"strings"
)

// The exit codes of kcpctl.
const (
	Failed      = 1   // the command failed, or found differences
	BadInput    = 2   // bad flags or setup file
	NotReady    = 3   // applied, but not ready in time
	Conflict    = 4   // another field manager owns a field, or another run holds the lock
	Interrupted = 130 // Ctrl-C
)

// Error is an error with an exit code and a next step.
type Error struct {
	Err error
	// Code is the process's exit code.
	Code int
	// Hint is what to run or to change next.
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// New returns an Error with a formatted message, which may wrap another error with %w.
func New(code int, hint, format string, args ...any) *Error {
	return &Error{Err: fmt.Errorf(format, args...), Code: code, Hint: hint}
}

// Code returns the exit code of the first error in the chain that has one, or else Failed. It returns 0 for nil.
func Code(err error) int {
	if err == nil {
		return 0
	}
	for e, ok := errors.AsType[*Error](err); ok; e, ok = errors.AsType[*Error](e.Err) {
		if e.Code != 0 {
			return e.Code
		}
	}
	return Failed
}

// Hint returns the hint of the first error in the chain that has one.
func Hint(err error) string {
	for e, ok := errors.AsType[*Error](err); ok; e, ok = errors.AsType[*Error](e.Err) {
		if e.Hint != "" {
			return e.Hint
		}
	}
	return ""
}

// Also adds a next step to those of an error.
func Also(err error, hint string) *Error {
	if h := Hint(err); h != "" {
		hint = strings.TrimSuffix(h, ".") + "; " + hint
	}
	return &Error{Err: err, Code: Code(err), Hint: hint}
}

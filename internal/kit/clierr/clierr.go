// Package clierr defines errors with an exit code and a hint about the next step.
package clierr

import (
	"errors"
	"fmt"
)

// The exit codes of kcpctl.
const (
	Failed      = 1   // the command failed; diff and check: something differs or fails
	BadInput    = 2   // bad flags or setup file
	NotReady    = 3   // applied, but not ready in time
	Conflict    = 4   // another field manager owns a field, or another run holds the lock
	Unknown     = 5   // diff and check: the command could not find out
	Interrupted = 130 // Ctrl-C
)

// Error is an error with an exit code and a next step.
type Error struct {
	Err error
	// Code is the process's exit code.
	Code int
	// Hint is what to run or to change next. It may contain IDs and Names.
	Hint string
	// Subject is the component that the error is about, such as shard/alpha. It is empty for most errors.
	Subject string

	// also means that Hint adds to the hints of Err.
	also bool
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

// Hint returns the next step of an error in one line. The first error in the chain that has one decides. Without one,
// the errors that were joined do.
func Hint(err error) string {
	if err == nil {
		return ""
	}
	p := problemOf(err)
	return expand(p.Hint, []string{p.Subject})
}

// remains marks an error: see Remains.
type remains struct{ error }

func (r *remains) Unwrap() error { return r.error }

// Remains marks the error of a clean-up: something is still there that the command had to remove, to stop or to put
// back. It is reported whatever else has failed, also after an interruption. It returns nil for nil.
func Remains(err error) error {
	if err == nil {
		return nil
	}
	return &remains{err}
}

// Left returns the errors in a tree that Remains has marked, or nil.
func Left(err error) error {
	for ; err != nil; err = errors.Unwrap(err) {
		if _, ok := err.(*remains); ok {
			return err
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			var found []error
			for _, part := range joined.Unwrap() {
				found = append(found, Left(part))
			}
			return errors.Join(found...)
		}
	}
	return nil
}

// Also adds a next step to the hint of an error.
func Also(err error, hint string) *Error {
	return &Error{Err: err, Code: Code(err), Hint: hint, also: true}
}

package record

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Run is a run of a command that changes an installation: the one that holds the lock, or the last one that began to
// write and has not finished. It has no secrets: neither the flags of the command nor the output of components.
type Run struct {
	// Command is the command with its arguments, and without its flags.
	Command string `json:"command,omitempty"`
	// User is who runs it, and Host and PID are where.
	User string `json:"user,omitempty"`
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// Since is when it took the lock.
	Since time.Time `json:"since,omitzero"`
	// Renewed is when it last renewed its lock on a cluster.
	Renewed time.Time `json:"renewed,omitzero"`
	// Ended is when it ended, and Result how. They are empty for a run in progress, and Ended is zero if the process
	// was killed.
	Ended  time.Time `json:"ended,omitzero"`
	Result RunResult `json:"result,omitempty"`
	// Error is the first line of the error.
	Error string `json:"error,omitempty"`
}

// RunResult is how a run ended that has not finished.
type RunResult string

// The results of runs.
const (
	RunFailed      RunResult = "failed"
	RunInterrupted RunResult = "interrupted" // by the user, or the process was killed
)

// longestError is how much of an error is remembered.
const longestError = 300

// End returns the run with the reason why it ended before it was finished.
func (r Run) End(why error, now time.Time) *Run {
	r.Ended, r.Result = now.UTC().Truncate(time.Second), RunFailed
	if clierr.Code(why) == clierr.Interrupted || errors.Is(why, context.Canceled) {
		r.Result = RunInterrupted
		return &r
	}
	r.Error, _, _ = strings.Cut(why.Error(), "\n")
	if text := []rune(r.Error); len(text) > longestError {
		r.Error = string(text[:longestError]) + "..."
	}
	return &r
}

// Unfinished returns a run that has not finished and no longer holds the lock. If it could not say how it ended, it was
// killed. Without a run, an earlier kcpctl has left no more than the mark of one.
func Unfinished(r *Run) *Run {
	out := Run{}
	if r != nil {
		out = *r
	}
	if out.Result == "" {
		out.Result = RunInterrupted
	}
	return &out
}

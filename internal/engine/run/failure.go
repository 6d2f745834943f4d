package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/dag"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// notReady is the error of a component that did not become ready.
type notReady struct {
	reason string
	detail []string
	// next is the command that repairs it, if there is one.
	next  string
	cause error
}

func (e *notReady) Error() string {
	msg := "not ready"
	if e.cause != nil && !errors.Is(e.cause, context.Canceled) {
		msg += " (" + e.cause.Error() + ")"
	}
	if e.reason != "" {
		msg += ": " + e.reason
	}
	for _, line := range e.detail {
		msg += "\n    " + line
	}
	return msg
}

func (e *notReady) Unwrap() error { return e.cause }

type errTimeout struct{ after time.Duration }

func (e errTimeout) Error() string { return fmt.Sprintf("timed out after %s", e.after) }

// withTimeout ends ctx after a time, with errTimeout as its cause. Zero never ends it.
func withTimeout(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	if after <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, after, errTimeout{after})
}

// errInterrupted is the error of a run that the user has ended.
func errInterrupted() error {
	return clierr.New(clierr.Interrupted, "rerun the command: it continues",
		"interrupted; completed work is kept")
}

// hintRerun is the next step after a failure that has no better one.
const hintRerun = "fix the cause and rerun the command; completed work is kept"

// summarize joins the errors of all components into one. Each has its own next step.
func (u *Up) summarize(ctx context.Context, errs map[topology.ID]error) error {
	skipped := 0
	var failed []*clierr.Error
	for _, c := range u.Topology.Components {
		switch err := errs[c.ID()]; {
		case err == nil:
		case errors.Is(err, dag.ErrSkipped):
			skipped++
		default:
			failed = append(failed, failureOf(c.ID(), err))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return errInterrupted()
	}
	if skipped > 0 {
		last := failed[len(failed)-1]
		last.Err = fmt.Errorf("%w\n%s skipped", last.Err,
			gather.Count(skipped, "component that needs them was", "components that need them were"))
	}
	code := 0
	var all []error
	for _, e := range failed {
		code = max(code, e.Code)
		all = append(all, e)
	}
	return &clierr.Error{Err: parallel.Join(all), Code: code}
}

// failureOf returns the error of a component that has failed.
func failureOf(id topology.ID, err error) *clierr.Error {
	code, hint := clierr.Code(err), ""
	if errors.As(err, new(*notReady)) || errors.As(err, new(errTimeout)) {
		code = clierr.NotReady
	}
	if nr, ok := errors.AsType[*notReady](err); ok && nr.next != "" {
		hint = "repair it with " + nr.next + ", then rerun the command; completed work is kept"
	}
	return clierr.About(string(id), code, cmp.Or(hint, clierr.Hint(err), hintRerun), "%s: %v", id, err)
}

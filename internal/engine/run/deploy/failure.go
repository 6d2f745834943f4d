package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
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
		return run.Interruption()
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
	if errors.As(err, new(*notReady)) || errors.As(err, new(run.TimedOut)) {
		code = clierr.NotReady
	}
	if nr, ok := errors.AsType[*notReady](err); ok && nr.next != "" {
		hint = "repair it with " + nr.next + ", then rerun the command; completed work is kept"
	}
	return clierr.About(string(id), code, cmp.Or(hint, clierr.Hint(err), hintRerun), "%s: %v", id, err)
}

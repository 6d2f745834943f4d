package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/dag"
	"github.com/kcpctl/kcpctl/internal/topology"
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

// errInterrupted is the error of a run that the user has ended.
func errInterrupted() error {
	return clierr.New(clierr.Interrupted, "rerun the command: it continues",
		"interrupted; completed work is kept")
}

// hintRerun is the next step after a failure that has no better one.
const hintRerun = "fix the cause and rerun the command; completed work is kept"

// summarize joins the errors of all components into one.
func (u *Up) summarize(ctx context.Context, errs map[topology.ID]error) error {
	code, skipped, hint := 0, 0, ""
	var msgs []string
	for _, c := range u.Topology.Components {
		err := errs[c.ID()]
		var nr *notReady
		switch {
		case err == nil:
			continue
		case errors.Is(err, dag.ErrSkipped):
			skipped++
			continue
		case errors.As(err, &nr), errors.As(err, new(errTimeout)):
			code = max(code, clierr.NotReady)
			if nr != nil && nr.next != "" {
				hint = cmp.Or(hint, "repair it with "+nr.next+", then rerun the command; completed work is kept")
			}
		default:
			code = max(code, clierr.Code(err))
		}
		msgs, hint = append(msgs, fmt.Sprintf("%s: %v", c.ID(), err)), cmp.Or(hint, clierr.Hint(err))
	}
	if len(msgs) == 0 {
		return nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return errInterrupted()
	}
	if skipped > 0 {
		msgs = append(msgs, count(skipped, "component that needs them was", "components that need them were")+" skipped")
	}
	return clierr.New(code, cmp.Or(hint, hintRerun), "%s", strings.Join(msgs, "\n"))
}

// Package poll waits until something is done, and says what it waits for.
package poll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Expired is the error of a wait whose context has ended.
type Expired struct {
	// Reason is the last reason to wait.
	Reason string
	// Cause is why the context has ended.
	Cause error
	// Last is the failure that it waited out last, for UntilWorks.
	Last error
}

// Error implements error.
func (e *Expired) Error() string {
	if e.Reason == "" {
		return e.Cause.Error()
	}
	return e.Cause.Error() + ": " + e.Reason
}

// Unwrap returns the cause and the last failure.
func (e *Expired) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Cause, e.Last}, func(err error) bool { return err == nil })
}

// Pause waits for a while. It fails with the cause if ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Signal wakes a goroutine that receives from it. Signals that were not received yet are one.
type Signal chan struct{}

// NewSignal returns a signal.
func NewSignal() Signal { return make(Signal, 1) }

// Send sends the signal. It does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Until calls try at once, and then after each interval, until it returns no reason to wait, or an error. report is
// called with each reason that differs from the one before; it may be nil. If ctx ends first, the error is Expired.
func Until(ctx context.Context, interval time.Duration, report func(reason string),
	try func() (reason string, err error),
) error {
	last := ""
	err := wait.PollUntilContextCancel(ctx, interval, true, func(context.Context) (bool, error) {
		reason, err := try()
		if err != nil || reason == "" {
			return err == nil, err
		}
		if reason == last || ctx.Err() != nil {
			return false, nil
		}
		if last = reason; report != nil {
			report(reason)
		}
		return false, nil
	})
	if wait.Interrupted(err) && ctx.Err() != nil {
		return &Expired{Reason: last, Cause: context.Cause(ctx)}
	}
	return err
}

// Reason returns the text of an error as a reason to wait, which is never empty.
func Reason(err error) string { return cmp.Or(err.Error(), fmt.Sprintf("%T", err)) }

// UntilWorks waits until try returns no error. Its errors are the reasons to wait.
func UntilWorks(ctx context.Context, interval time.Duration, report func(reason string), try func() error) error {
	var last error
	err := Until(ctx, interval, report, func() (string, error) {
		if last = try(); last != nil {
			return Reason(last), nil
		}
		return "", nil
	})
	if late := (*Expired)(nil); errors.As(err, &late) {
		late.Last = last
	}
	return err
}

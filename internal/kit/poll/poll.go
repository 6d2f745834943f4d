// Package poll waits until something is done, and says what it waits for.
package poll

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Expired is the error of a wait whose context has ended.
type Expired struct {
	// Reason is what it waited for last.
	Reason string
	// Cause is why the context has ended.
	Cause error
}

// Error implements error.
func (e *Expired) Error() string {
	if e.Reason == "" {
		return e.Cause.Error()
	}
	return e.Reason + ": " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *Expired) Unwrap() error { return e.Cause }

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
		return &Expired{last, context.Cause(ctx)}
	}
	return err
}

// Package poll waits until something holds.
package poll

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Until calls done at once, and then after each interval, until it reports that what is awaited holds, or fails. If ctx
// ends before, it returns the cause of that.
func Until(ctx context.Context, interval time.Duration, done func() (bool, error)) error {
	err := wait.PollUntilContextCancel(ctx, interval, true, func(context.Context) (bool, error) { return done() })
	if wait.Interrupted(err) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

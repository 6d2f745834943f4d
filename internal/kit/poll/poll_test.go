package poll_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

func TestUntil(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		done  func(calls int) (bool, error)
		err   error
		calls int
		after time.Duration
	}{
		"at once":                {func(int) (bool, error) { return true, nil }, nil, 1, 0},
		"after two intervals":    {func(calls int) (bool, error) { return calls == 3, nil }, nil, 3, 2 * time.Second},
		"it fails":               {func(calls int) (bool, error) { return false, failed }, failed, 1, 0},
		"it ends with its cause": {func(int) (bool, error) { return false, nil }, context.DeadlineExceeded, 11, 10500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cause := errors.New("no time left")
				ctx, cancel := context.WithTimeoutCause(t.Context(), 10500*time.Millisecond, cause)
				defer cancel()
				if c.err == context.DeadlineExceeded {
					c.err = cause
				}
				began, calls := time.Now(), 0
				err := poll.Until(ctx, time.Second, func() (bool, error) { calls++; return c.done(calls) })
				require.Equal(t, c.err, err)
				require.Equal(t, c.calls, calls)
				require.Equal(t, c.after, time.Since(began))
			})
		})
	}
}

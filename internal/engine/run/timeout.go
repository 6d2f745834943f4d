package run

import (
	"context"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// PollInterval is the time between two looks at what a run waits for.
const PollInterval = 250 * time.Millisecond

// TimedOut is the cause of the end of a context of WithTimeout.
type TimedOut struct{ after time.Duration }

func (e TimedOut) Error() string { return fmt.Sprintf("timed out after %s", e.after) }

// WithTimeout ends ctx after a time, with TimedOut as its cause. Zero never ends it.
func WithTimeout(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	if after <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, after, TimedOut{after})
}

// Interruption is the error of a run that the user has ended.
func Interruption() error {
	return clierr.New(clierr.Interrupted, "rerun the command: it continues",
		"interrupted; completed work is kept")
}

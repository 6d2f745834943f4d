// Package retry repeats requests to API servers that fail for a reason that passes, and finds out whether a request
// whose response was lost was carried out.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// Limit is how long a request that fails for a passing reason is retried: long enough for an API server that
	// restarts, or an etcd that elects a leader.
	Limit = 30 * time.Second
	// FirstLimit is the same for the first request of all. After it, the API server is known to exist.
	FirstLimit = 2 * time.Second
	// AnswerTimeout is how long an API server may take to answer. It gives up by itself after a minute.
	AnswerTimeout = 65 * time.Second
	// slowPause is the pause after which OnSlow is called.
	slowPause = time.Second
)

// ErrNoAnswer means that an API server accepted a request and did not answer it in time.
var ErrNoAnswer = fmt.Errorf("no answer within %s", AnswerTimeout)

// backoff has pauses of 0.2, 0.4, 0.8, 1.6, 3.2 and then 4 seconds. Only Policy.Limit ends the retries.
var backoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Cap: 4 * time.Second, Steps: math.MaxInt}

// Policy says when and for how long a request is retried.
type Policy struct {
	// Limit is how long it may keep failing.
	Limit time.Duration
	// Retriable reports whether an error is worth another try.
	Retriable func(error) bool
	// OnSlow is called with an error that does not pass quickly. It may be nil.
	OnSlow func(error)
}

// Do calls f until it succeeds, fails with an error that is not retriable, or has failed for too long. It does not call
// f after ctx has ended, for example because the run has lost its lock: then it returns the cause.
func Do[T any](ctx context.Context, p Policy, f func() (T, error)) (T, error) {
	limit := time.NewTimer(p.Limit)
	defer limit.Stop()
	for pauses := backoff; ; {
		if ctx.Err() != nil {
			var none T
			return none, context.Cause(ctx)
		}
		out, err := f()
		if err == nil || !p.Retriable(err) {
			return out, err
		}
		pause := pauses.Step()
		if pause > slowPause && p.OnSlow != nil {
			p.OnSlow(err)
		}
		select {
		case <-ctx.Done():
			return out, context.Cause(ctx)
		case <-limit.C:
			return out, err
		case <-time.After(pause):
		}
	}
}

// WithTimeout makes a request that fails with ErrNoAnswer if it is not answered in time.
func WithTimeout[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeoutCause(ctx, AnswerTimeout, ErrNoAnswer)
	defer cancel()
	out, err := f(limited)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), ErrNoAnswer) {
		err = ErrNoAnswer
	}
	return out, err
}

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
	failed, late := errors.New("failed"), errors.New("no time left")
	waits := func(reasons ...string) func(calls int) (string, error) {
		return func(calls int) (string, error) { return reasons[min(calls, len(reasons))-1], nil }
	}
	for name, c := range map[string]struct {
		try      func(calls int) (string, error)
		err      error
		reported []string
		after    time.Duration
	}{
		"at once":           {waits(""), nil, nil, 0},
		"after a while":     {waits("a", "a", "b", "a", ""), nil, []string{"a", "b", "a"}, 4 * time.Second},
		"it fails":          {func(int) (string, error) { return "a", failed }, failed, nil, 0},
		"the time runs out": {waits("a", "b"), &poll.Expired{Reason: "b", Cause: late}, []string{"a", "b"}, 10500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 10500*time.Millisecond, late)
				defer cancel()
				began, calls := time.Now(), 0
				var reported []string
				err := poll.Until(ctx, time.Second, func(reason string) { reported = append(reported, reason) },
					func() (string, error) { calls++; return c.try(calls) })
				require.Equal(t, c.err, err)
				require.Equal(t, c.reported, reported)
				require.Equal(t, c.after, time.Since(began))
			})
		})
	}
}

func TestUntilWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, refused := errors.New("no time left"), errors.New("refused")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		calls := 0
		require.NoError(t, poll.UntilWorks(ctx, time.Second, nil, func() error {
			if calls++; calls < 3 {
				return refused
			}
			return nil
		}))
		silent := 0
		require.NoError(t, poll.UntilWorks(ctx, time.Second, nil, func() error {
			if silent++; silent < 3 {
				return errors.New("")
			}
			return nil
		}))
		require.Equal(t, 3, silent)
		err := poll.UntilWorks(ctx, time.Second, nil, func() error { return refused })
		require.EqualError(t, err, "no time left: refused")
		require.ErrorIs(t, err, late)
		require.ErrorIs(t, err, refused)
	})
}

func TestExpired(t *testing.T) {
	late := errors.New("no time left")
	require.EqualError(t, &poll.Expired{Cause: late}, "no time left")
	require.ErrorIs(t, &poll.Expired{Cause: late}, late)
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, poll.Pause(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(began))
		late := errors.New("no time left")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
		defer cancel()
		require.Equal(t, late, poll.Pause(ctx, time.Minute))
		require.Equal(t, time.Minute+time.Second, time.Since(began))
	})
}

func TestSignal(t *testing.T) {
	s := poll.NewSignal()
	s.Send()
	s.Send()
	<-s
	select {
	case <-s:
		t.Fatal("it was received")
	default:
	}
}

package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

func TestMapKeepsTheOrderAndTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		start := time.Now()
		out := parallel.Map(2, []int{3, 1, 2}, func(n int) string {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Duration(n) * time.Second)
			running.Add(-1)
			return fmt.Sprint(n)
		})
		require.Equal(t, []string{"3", "1", "2"}, out)
		require.EqualValues(t, 2, most.Load())
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestEachReturnsEveryErrorOnce(t *testing.T) {
	err := parallel.Each(t.Context(), []string{"a", "", "b", "a"}, func(_ context.Context, s string) error {
		if s == "" {
			return nil
		}
		return errors.New(s)
	})
	require.EqualError(t, err, "a\nb")
	ctx, cancel := context.WithCancelCause(t.Context())
	lost := errors.New("lost the lock")
	cancel(lost)
	err = parallel.Each(ctx, []string{"a"}, func(context.Context, string) error { t.Error("called"); return nil })
	require.ErrorIs(t, err, lost)
}

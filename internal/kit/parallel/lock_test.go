package parallel

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// In a bubble, time passes only while all goroutines wait for something that the bubble knows. A mutex is not known: a
// request that waits for time while another one waits for the mutex would never end.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lock
		require.NoError(t, l.Lock(t.Context()))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too late"))
		defer cancel()
		require.EqualError(t, l.Lock(ctx), "too late")
		go func() {
			time.Sleep(time.Minute)
			l.Unlock()
		}()
		began := time.Now()
		require.NoError(t, l.Lock(t.Context()))
		require.Equal(t, time.Minute, time.Since(began))
		require.EqualError(t, l.Lock(ctx), "too late")
	})
}

func TestMemo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			m     Memo[string, int]
			calls atomic.Int32
			fails = true
		)
		do := func(context.Context) (int, error) {
			time.Sleep(time.Second)
			if fails {
				return 0, errors.New("no answer")
			}
			return int(calls.Add(1)), nil
		}
		_, err := m.Get(t.Context(), "a", do)
		require.EqualError(t, err, "no answer")
		fails = false
		got := Map(10, Indices(make([]int, 10)), func(int) int {
			v, err := m.Get(t.Context(), "a", do)
			require.NoError(t, err)
			return v
		})
		require.Equal(t, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, got)
		v, err := m.Get(t.Context(), "b", do)
		require.NoError(t, err)
		require.Equal(t, 2, v)
	})
}

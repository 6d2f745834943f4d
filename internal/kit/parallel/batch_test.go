package parallel_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b parallel.Batch
		var wg sync.WaitGroup
		start, calls := time.Now(), 0
		var ended []time.Duration
		var mu sync.Mutex
		do := func() { // unsynchronized: calls never overlap
			calls++
			time.Sleep(10 * time.Second)
		}
		for _, at := range []time.Duration{0, time.Second, 2 * time.Second, 15 * time.Second, 40 * time.Second} {
			wg.Go(func() {
				time.Sleep(at)
				b.Do(do)
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, time.Since(start).Round(time.Second))
			})
		}
		wg.Wait()
		require.Equal(t, 4, calls)
		require.Equal(t, []time.Duration{
			10 * time.Second, 20 * time.Second, 20 * time.Second, 30 * time.Second, 50 * time.Second,
		}, ended)
	})
}

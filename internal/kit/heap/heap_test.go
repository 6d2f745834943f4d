package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercent(t *testing.T) {
	const megabyte = 1 << 20
	for live, want := range map[uint64]int{
		0: 400, megabyte: 400, 25 * megabyte: 400, 32 * megabyte: 300, 50 * megabyte: 156, 64 * megabyte: 100, 128 * megabyte: 100,
		256 * megabyte: 100, 2048 * megabyte: 100,
	} {
		require.Equal(t, want, percent(live), "%d MB", live/megabyte)
	}
}

func TestPaceFollowsTheHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	serve := Pace()
	current := func() int {
		runtime.GC()
		return percentage()
	}
	large := make([]byte, roomy)
	require.Eventually(t, func() bool { return current() == least }, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(large)
	require.Eventually(t, func() bool { return current() == most }, 10*time.Second, time.Millisecond)
	serve()
	for range 3 {
		require.Equal(t, serving, current())
	}
}

// percentage returns the percentage that is set. It reads it without setting another one, so that Pace is not
// disturbed.
func percentage() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}

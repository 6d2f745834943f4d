package heap

import (
	"runtime"
	"runtime/debug"
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
	Pace()
	current := func() int {
		runtime.GC()
		p := debug.SetGCPercent(most)
		debug.SetGCPercent(p)
		return p
	}
	large := make([]byte, roomy)
	require.Eventually(t, func() bool { return current() == least }, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(large)
	require.Eventually(t, func() bool { return current() == most }, 10*time.Second, time.Millisecond)
}

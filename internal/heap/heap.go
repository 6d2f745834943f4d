// Package heap decides how much memory may be traded for fewer garbage collections.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// most and least are the bounds of the percentage by which the heap may grow until the next collection. kcpctl is
	// short-lived, so while its heap is small, it hardly collects. The default of Go is 100.
	most, least = 400, 100
	// roomy is the size in bytes up to which the heap may grow by more than the least percentage.
	roomy = 128 << 20
)

// Pace sets after each garbage collection how far the heap may grow until the next one, according to what is in use. A fixed
// percentage would either slow down all commands, or multiply the memory of those that work on hundreds of shards. A memory limit
// would collect without end if more than the limit is in use.
func Pace() {
	debug.SetGCPercent(most)
	repeat()
}

// repeat adjusts the percentage once after the next collection, and then repeats.
func repeat() {
	// The collector frees this at once. It is large enough not to share its memory with other objects.
	runtime.AddCleanup(new([64]byte), func(int) {
		debug.SetGCPercent(percent(live()))
		repeat()
	}, 0)
}

// live is the size in bytes of what the last collection found in use.
func live() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// percent is the percentage by which a heap may grow.
func percent(live uint64) int {
	if live >= roomy {
		return least
	}
	return int(min(most, max(least, (roomy-live)*100/max(live, 1))))
}

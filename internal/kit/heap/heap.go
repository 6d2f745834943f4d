// Package heap decides how much memory may be traded for fewer garbage collections.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// most and least are the bounds of the percentage by which the heap may grow until the next collection. kcpctl is
	// short-lived, so while its heap is small, it hardly collects. The default of Go is 100.
	most, least = 400, 100
	// serving is the percentage of servers: they run for months, share the machine, and have little to collect.
	serving = 25
	// roomy is the size in bytes up to which the heap may grow by more than the least percentage.
	roomy = 128 << 20
)

// Pace sets after each garbage collection the limit to which the heap may grow until the next one, according to the
// memory in use. A fixed percentage would either slow down all commands, or multiply the memory of commands that work
// on hundreds of shards. A memory limit would collect without end if more than the limit is in use. The returned
// function ends it, for commands that are servers.
func Pace() (serve func()) {
	p := &pace{}
	p.set(most)
	p.repeat()
	return p.end
}

// pace sets the percentage until it ends.
type pace struct {
	mu    sync.Mutex
	ended bool
}

// set sets the percentage, and reports whether the pace goes on.
func (p *pace) set(percent int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		debug.SetGCPercent(percent)
	}
	return !p.ended
}

func (p *pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	debug.SetGCPercent(serving)
}

// repeat adjusts the percentage once after the next collection, and then repeats.
func (p *pace) repeat() {
	// The collector frees this at once. It is large enough not to share its memory with other objects.
	runtime.AddCleanup(new([64]byte), func(int) {
		if p.set(percent(live())) {
			p.repeat()
		}
	}, 0)
}

// live returns the memory, in bytes, that the last collection found in use.
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

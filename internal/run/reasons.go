package run

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// reasons joins what several waits wait for into one message.
type reasons struct {
	mu     sync.Mutex
	of     map[string]string
	last   string
	report func(string)
}

func newReasons(report func(string)) *reasons {
	return &reasons{of: map[string]string{}, report: report}
}

// set says what one of them waits for; nothing if it has ended.
func (r *reasons) set(name, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[name] = reason
	if reason == "" {
		delete(r.of, name)
	}
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(r.of)) {
		parts = append(parts, n+": "+r.of[n])
	}
	if msg := strings.Join(parts, "; "); msg != r.last {
		r.last = msg
		r.report(msg)
	}
}

package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress writes one line per step. Steps may run concurrently.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, began: time.Now()} }

// step writes that a step has ended, and its duration.
func (p *progress) step(what string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "%7.1fs  %-50s %6.1fs\n", time.Since(p.began).Seconds(), what, took.Seconds())
}

// note writes a message.
func (p *progress) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "%7.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

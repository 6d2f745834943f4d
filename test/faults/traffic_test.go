//go:build integration

package faults

import (
	"fmt"
	"net/http"
	"sync"
)

// fault is what happens to a command: one request fails.
type fault struct {
	kind
	// n is which request, from 1: the first from the n-th on that the kind fits.
	n int
}

func (f *fault) String() string { return fmt.Sprintf("%s at %d", f.name, f.n) }

// request is a request that a command has made.
type request struct {
	line string
	// fits says which kinds of fault can hit it.
	fits map[string]bool
}

// traffic are the requests of one run of a command.
type traffic struct {
	fault *fault // nil is none
	kill  func()

	mu       sync.Mutex
	requests []request
	hit      string // the request that the fault has hit
}

// add counts a request, and tells whether it is the one to fail.
func (t *traffic) add(r *http.Request) (fails bool) {
	line := r.Method + " " + r.URL.RequestURI()
	fits := map[string]bool{}
	for _, k := range kinds() {
		fits[k.name] = k.fits == nil || k.fits(r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests = append(t.requests, request{line, fits})
	f := t.fault
	if f == nil || t.hit != "" || len(t.requests) < f.n || f.fits != nil && !f.fits(r) {
		return false
	}
	t.hit = line
	return true
}

// seen returns the requests so far, and that which the fault has hit.
func (t *traffic) seen() (all []request, hit string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests, t.hit
}

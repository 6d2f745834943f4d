package faults

import (
	"fmt"
	"net/http"
	"sync"
)

// fault makes one request of a command fail.
type fault struct {
	kind
	// n selects the request: the first one from the n-th on, counted from 1, that the kind fits.
	n int
}

func (f *fault) String() string { return fmt.Sprintf("%s at %d", f.name, f.n) }

// request is a request of a command.
type request struct {
	line string
	// fits has the kinds of fault that can hit it.
	fits map[string]bool
}

// traffic has the requests of one run of a command.
type traffic struct {
	fault *fault // may be nil
	kill  func()

	mu       sync.Mutex
	requests []request
	hit      string // the request that the fault has hit
}

// add counts a request, and reports whether it must fail.
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

// seen returns the requests so far, and the failed one.
func (t *traffic) seen() (all []request, hit string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests, t.hit
}

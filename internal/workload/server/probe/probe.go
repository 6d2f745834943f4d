// Package probe serves the state of a server: /healthz, /readyz, and metrics in the text format of Prometheus.
package probe

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Metric is a gauge, a counter or a histogram. Metrics with the same name follow each other.
type Metric struct {
	// Name and Help are the name and the help text of the metric. A metric whose name ends with _total is a counter.
	Name, Help string
	Labels     map[string]string
	Value      float64
	// Distribution makes the metric a histogram.
	Distribution *Distribution
}

// State is the state that a server reports. Functions that are nil have no problem, and no metrics.
type State struct {
	// Healthy returns why the server has to be restarted, and Ready why it does not work now.
	Healthy, Ready func() error
	Metrics        func() []Metric
}

// Probe serves the state of a server. The zero value is ready, such as a controller that waits while another one works.
type Probe struct {
	// Requests counts the requests of the server to API servers.
	Requests Requests

	mu    sync.Mutex
	state State
}

// Set sets the state.
func (p *Probe) Set(s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

func (p *Probe) get() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Busy records what a server works on, to find what never ends. The zero value can be used.
type Busy struct {
	mu    sync.Mutex
	since map[*string]time.Time
}

// Begin records that the server works on something, until the function that it returns is called.
func (b *Busy) Begin(what string, at time.Time) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since == nil {
		b.since = map[*string]time.Time{}
	}
	b.since[&what] = at
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.since, &what)
	}
}

// Stuck returns an error that names what the server has worked on for longer than the limit, the longest.
func (b *Busy) Stuck(now time.Time, limit time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var longest time.Duration
	what := ""
	for name, at := range b.since {
		if d := now.Sub(at); d > limit && d > longest {
			longest = d
			what = *name
		}
	}
	if what == "" {
		return nil
	}
	return fmt.Errorf("%s has not ended for %s", what, longest.Round(time.Second))
}

// Handler returns the handler of all paths.
func (p *Probe) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.get().Healthy) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.get().Ready) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		var all []Metric
		if metrics := p.get().Metrics; metrics != nil {
			all = metrics()
		}
		fmt.Fprint(w, text(append(all, p.Requests.metrics()...)))
	})
	return mux
}

func answer(w http.ResponseWriter, check func() error) {
	if check != nil {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}

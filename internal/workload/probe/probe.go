// Package probe serves the state of a server: /healthz, /readyz, and metrics in the text format of Prometheus.
package probe

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Metric is the value of a gauge. Those with the same name follow each other.
type Metric struct {
	// Name and Help are those of the gauge.
	Name, Help string
	Labels     map[string]string
	Value      float64
}

// State is what a server tells about itself. Functions that are nil have no problem, and no metrics.
type State struct {
	// Healthy returns why the server has to be restarted, and Ready why it does not work now.
	Healthy, Ready func() error
	Metrics        func() []Metric
}

// Probe serves the state of a server. The zero value is ready, such as a controller that waits while another one works.
type Probe struct {
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

// Handler returns the handler of all paths.
func (p *Probe) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.get().Healthy) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.get().Ready) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		if metrics := p.get().Metrics; metrics != nil {
			fmt.Fprint(w, text(metrics()))
		}
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

// text returns metrics in the text format (prometheus.io/docs/instrumenting/exposition_formats).
func text(all []Metric) string {
	var b strings.Builder
	last := ""
	for _, m := range all {
		if m.Name != last {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", m.Name, m.Help, m.Name)
			last = m.Name
		}
		b.WriteString(m.Name)
		if len(m.Labels) > 0 {
			var labels []string
			for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
				labels = append(labels, name+`="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(m.Labels[name])+`"`)
			}
			b.WriteString("{" + strings.Join(labels, ",") + "}")
		}
		b.WriteString(" " + strconv.FormatFloat(m.Value, 'g', -1, 64) + "\n")
	}
	return b.String()
}

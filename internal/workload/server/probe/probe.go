// Package probe serves the state of a server: /healthz, /readyz, and metrics in the text format of Prometheus.
package probe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

	state atomic.Pointer[State]
}

// Set sets the state.
func (p *Probe) Set(s State) { p.state.Store(&s) }

func (p *Probe) get() State {
	if s := p.state.Load(); s != nil {
		return *s
	}
	return State{}
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

// text returns metrics in the text format (prometheus.io/docs/instrumenting/exposition_formats).
func text(all []Metric) string {
	var b strings.Builder
	last := ""
	for _, m := range all {
		if m.Name != last {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.kind())
			last = m.Name
		}
		if d := m.Distribution; d != nil {
			d.write(&b, m)
			continue
		}
		b.WriteString(m.Name + labels(m.Labels) + " " + number(m.Value) + "\n")
	}
	return b.String()
}

func (m Metric) kind() string {
	switch {
	case m.Distribution != nil:
		return "histogram"
	case strings.HasSuffix(m.Name, "_total"):
		return "counter"
	}
	return "gauge"
}

func (d *Distribution) write(b *strings.Builder, m Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	below := uint64(0)
	for i, n := range d.counts {
		below += n
		le := "+Inf"
		if i < len(buckets) {
			le = number(buckets[i].Seconds())
		}
		with := maps.Clone(m.Labels)
		if with == nil {
			with = map[string]string{}
		}
		with["le"] = le
		fmt.Fprintf(b, "%s_bucket%s %d\n", m.Name, labels(with), below)
	}
	fmt.Fprintf(b, "%s_sum%s %s\n%s_count%s %d\n", m.Name, labels(m.Labels), number(d.sum.Seconds()), m.Name,
		labels(m.Labels), below)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func labels(all map[string]string) string {
	if len(all) == 0 {
		return ""
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+`="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(all[name])+`"`)
	}
	return "{" + strings.Join(out, ",") + "}"
}

// buckets are the limits of the buckets of a Distribution. The last bucket has no limit.
var buckets = [...]time.Duration{
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond,
	250 * time.Millisecond,
	500 * time.Millisecond, 700 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute,
}

// Distribution counts durations in buckets. The zero value is empty.
type Distribution struct {
	mu     sync.Mutex
	counts [len(buckets) + 1]uint64
	sum    time.Duration
}

// Observe adds a duration.
func (d *Distribution) Observe(took time.Duration) {
	i, _ := slices.BinarySearch(buckets[:], took)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[i]++
	d.sum += took
}

// Requests counts requests by their result, for client-go (tools/metrics.ResultMetric). The zero value is empty.
type Requests struct {
	mu  sync.Mutex
	all map[request]float64
}

type request struct{ host, method, code string }

// Increment counts a request.
func (r *Requests) Increment(_ context.Context, code, method, host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[request]float64{}
	}
	r.all[request{host, method, code}]++
}

func (r *Requests) metrics() []Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	order := func(a, b request) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.method, b.method), cmp.Compare(a.code, b.code))
	}
	var out []Metric
	for _, k := range slices.SortedFunc(maps.Keys(r.all), order) {
		out = append(out, Metric{
			Name: "rest_client_requests_total", Help: "Requests to API servers, by host, method and status code.",
			Labels: map[string]string{"host": k.host, "method": k.method, "code": k.code}, Value: r.all[k],
		})
	}
	return out
}

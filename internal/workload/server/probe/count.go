package probe

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

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

package usage

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The metrics that are read. Servers of kcp are API servers (kubernetes: staging/src/k8s.io/apiserver/pkg/endpoints/
// metrics). The metric of front-proxies does not tell watches from other requests, so it shows no latency (kcp:
// pkg/proxy/metrics).
const (
	metricRequests   = "apiserver_request_total"
	metricDurations  = "apiserver_request_duration_seconds_bucket"
	metricProxyCount = "proxy_request_duration_seconds_count"
	metricMemory     = "process_resident_memory_bytes"
	metricCPU        = "process_cpu_seconds_total"
	metricStarted    = "process_start_time_seconds"
	metricDatabase   = "apiserver_storage_size_bytes"
	// The numbers of stored objects, until Kubernetes 1.33 and since.
	metricStorageObjects  = "apiserver_storage_objects"
	metricResourceObjects = "apiserver_resource_objects"
)

// maxLine is the length of the longest line of metrics that is read, in bytes.
const maxLine = 1 << 20

// longRunning are the verbs of requests that last as long as the client wants, so they say nothing about latency.
var longRunning = []string{"WATCH", "CONNECT", "WATCHLIST"}

// metrics are the sums of the metrics of a server.
type metrics struct {
	requests, memory, cpu, started, database float64
	// buckets are the numbers of requests by their largest duration in seconds: cumulative, as Prometheus has them.
	buckets map[float64]float64
	// objects are the numbers of stored objects by resource.
	objects map[string]float64
}

// readMetrics reads the text format of Prometheus. A shard with thousands of workspaces has 160,000 series, so it adds
// up the few that are needed as they arrive.
func readMetrics(r io.Reader) (*metrics, error) {
	m := &metrics{buckets: map[float64]float64{}, objects: map[string]float64{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if err := m.add(lines.Text()); err != nil {
			return nil, err
		}
	}
	return m, lines.Err()
}

// add adds a line, if the metric is one of those that are read.
func (m *metrics) add(line string) error {
	name := line[:max(0, strings.IndexAny(line, "{ "))]
	switch name {
	case metricRequests, metricProxyCount, metricMemory, metricCPU, metricStarted, metricDatabase, metricDurations,
		metricStorageObjects, metricResourceObjects:
	default:
		return nil
	}
	labels, value, err := parse(line[len(name):])
	if err != nil {
		return fmt.Errorf("metric %q: %w", line, err)
	}
	if slices.Contains(longRunning, labels["verb"]) {
		return nil
	}
	switch name {
	case metricRequests, metricProxyCount:
		m.requests += value
	case metricMemory:
		m.memory = value
	case metricCPU:
		m.cpu = value
	case metricStarted:
		m.started = value
	case metricDatabase:
		m.database = max(m.database, value)
	case metricStorageObjects:
		m.objects[labels["resource"]] = value
	case metricResourceObjects:
		m.objects[schema.GroupResource{Group: labels["group"], Resource: labels["resource"]}.String()] = value
	default:
		le, err := strconv.ParseFloat(labels["le"], 64)
		if err != nil {
			return fmt.Errorf("metric %q: %w", line, err)
		}
		m.buckets[le] += value
	}
	return nil
}

// parse returns the labels and the value of a series, without its name.
func parse(series string) (labels map[string]string, value float64, err error) {
	labels = map[string]string{}
	rest, braces := strings.CutPrefix(series, "{")
	for braces && !strings.HasPrefix(rest, "}") {
		name, quoted, ok := strings.Cut(rest, "=")
		text, err := strconv.QuotedPrefix(quoted)
		if !ok || err != nil {
			return nil, 0, fmt.Errorf("invalid labels")
		}
		if labels[name], err = strconv.Unquote(text); err != nil {
			return nil, 0, err
		}
		rest = strings.TrimPrefix(quoted[len(text):], ",")
	}
	number, _, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(rest, "}")), " ") // a time may follow
	value, err = strconv.ParseFloat(number, 64)
	return labels, value, err
}

// quantile returns the duration in seconds that a share of the requests between two readings did not exceed, as
// histogram_quantile of Prometheus does. ok is false without requests.
func quantile(q float64, before, after map[float64]float64) (seconds float64, ok bool) {
	bounds := make([]float64, 0, len(after))
	for le := range after {
		bounds = append(bounds, le)
	}
	slices.Sort(bounds)
	if len(bounds) < 2 {
		return 0, false
	}
	count := func(le float64) float64 { return after[le] - before[le] }
	rank := q * count(bounds[len(bounds)-1])
	if rank <= 0 {
		return 0, false
	}
	var below, lower float64 // the requests up to a bound, and the bound
	for _, le := range bounds {
		n := count(le)
		switch {
		case n < rank:
			below = n
			lower = le
			continue
		case math.IsInf(le, 1):
			return lower, true // longer than the largest bound
		}
		return lower + (le-lower)*(rank-below)/(n-below), true
	}
	return lower, true
}

package probe_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
)

func TestProbe(t *testing.T) {
	p := &probe.Probe{}
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	check := func(path string, code int, body string) {
		t.Helper()
		gotCode, gotBody := get(path)
		require.Equal(t, code, gotCode)
		require.Equal(t, body, gotBody)
	}
	check("/healthz", http.StatusOK, "ok\n")
	check("/readyz", http.StatusOK, "ok\n")
	check("/metrics", http.StatusOK, "")
	took := &probe.Distribution{}
	took.Observe(40 * time.Millisecond)
	took.Observe(50 * time.Millisecond)
	took.Observe(time.Hour)
	p.Requests.Increment(t.Context(), "200", "GET", "kcp:6443")
	p.Requests.Increment(t.Context(), "200", "GET", "kcp:6443")
	p.Set(probe.State{
		Ready: func() error { return errors.New("cannot list the Clusters") },
		Metrics: func() []probe.Metric {
			return []probe.Metric{
				{Name: "ready", Help: "Whether it is.", Labels: map[string]string{"cluster": `a"b`, "a": "c"}, Value: 1},
				{Name: "ready", Help: "Whether it is.", Labels: map[string]string{"cluster": "c2"}},
				{Name: "depth", Help: "Items.", Value: 2.5},
				{Name: "took_seconds", Help: "Time.", Labels: map[string]string{"cluster": "c1"}, Distribution: took},
			}
		},
	})
	check("/healthz", http.StatusOK, "ok\n")
	check("/readyz", http.StatusServiceUnavailable, "cannot list the Clusters\n")
	check("/metrics", http.StatusOK, `# HELP ready Whether it is.
# TYPE ready gauge
ready{a="c",cluster="a\"b"} 1
ready{cluster="c2"} 0
# HELP depth Items.
# TYPE depth gauge
depth 2.5
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{cluster="c1",le="0.01"} 0
took_seconds_bucket{cluster="c1",le="0.025"} 0
took_seconds_bucket{cluster="c1",le="0.05"} 2
took_seconds_bucket{cluster="c1",le="0.1"} 2
took_seconds_bucket{cluster="c1",le="0.15"} 2
took_seconds_bucket{cluster="c1",le="0.25"} 2
took_seconds_bucket{cluster="c1",le="0.5"} 2
took_seconds_bucket{cluster="c1",le="0.7"} 2
took_seconds_bucket{cluster="c1",le="1"} 2
took_seconds_bucket{cluster="c1",le="2.5"} 2
took_seconds_bucket{cluster="c1",le="5"} 2
took_seconds_bucket{cluster="c1",le="10"} 2
took_seconds_bucket{cluster="c1",le="30"} 2
took_seconds_bucket{cluster="c1",le="60"} 2
took_seconds_bucket{cluster="c1",le="+Inf"} 3
took_seconds_sum{cluster="c1"} 3600.09
took_seconds_count{cluster="c1"} 3
# HELP rest_client_requests_total Requests to API servers, by host, method and status code.
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200",host="kcp:6443",method="GET"} 2
`)
}

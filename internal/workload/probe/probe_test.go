package probe_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/workload/probe"
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
	p.Set(probe.State{
		Ready: func() error { return errors.New("cannot list the Clusters") },
		Metrics: func() []probe.Metric {
			return []probe.Metric{
				{Name: "ready", Help: "Whether it is.", Labels: map[string]string{"cluster": `a"b`, "a": "c"}, Value: 1},
				{Name: "ready", Help: "Whether it is.", Labels: map[string]string{"cluster": "c2"}},
				{Name: "depth", Help: "Items.", Value: 2.5},
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
`)
}

package controller

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/server/probe"
)

// The page has each metric that the controller and the syncers serve, with its labels, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	leaves := int64(1)
	c := newController(Options{Now: time.Now}, &workspace{})
	c.members.of["c1"] = &member{latency: newLatency()}
	c.see([]*api.Cluster{{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Status: api.ClusterStatus{Leaves: &leaves}}})
	s := &syncerState{cluster: "c1", latency: newLatency()}
	want := map[string]string{}
	for of, metrics := range map[string]func() []probe.Metric{"controller": c.metrics, "syncer": s.state(nil).Metrics} {
		for _, name := range scraped(t, metrics) {
			if _, both := want[name]; both {
				want[name] = "both"
			} else {
				want[name] = of
			}
		}
	}
	page, err := os.ReadFile("../../../../docs/metrics.md")
	require.NoError(t, err)
	have := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+(?:\\{.*\\})?)` \\| (controller|syncer|both) \\|").FindAllStringSubmatch(string(page), -1) {
		have[m[1]] = m[2]
	}
	require.Equal(t, want, have)
}

// scraped returns the names of metrics with their labels, as a probe serves them.
func scraped(t *testing.T, metrics func() []probe.Metric) (out []string) {
	t.Helper()
	p := &probe.Probe{}
	p.Requests.Increment(t.Context(), "200", "GET", "kcp:6443")
	p.Set(probe.State{Metrics: metrics})
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	label := regexp.MustCompile(`([a-z]+)="[^"]*"`)
	name := ""
	for line := range strings.Lines(w.Body.String()) {
		if what, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ = strings.Cut(what, " ")
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		var labels []string
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			if m[1] != "le" { // of each histogram
				labels = append(labels, m[1])
			}
		}
		full := name
		if len(labels) > 0 {
			full += "{" + strings.Join(labels, ",") + "}"
		}
		if !slices.Contains(out, full) {
			out = append(out, full)
		}
	}
	return out
}

// A syncer has to be restarted that has not looked at its cluster for some minutes.
func TestAnIdleSyncerIsNotHealthy(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &syncerState{}
	s.worked.Store(&now)
	healthy := func(after time.Duration) error {
		return s.state(func() time.Time { return now.Add(after) }).Healthy()
	}
	require.NoError(t, healthy(stuck))
	require.EqualError(t, healthy(stuck+time.Second), "the syncer has done nothing for 5m1s")
}

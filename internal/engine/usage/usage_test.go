package usage

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// server serves the metrics of a shard: each time a hundred more requests. It restarts after its first answer if
// asked.
func server(t *testing.T, restarts bool) *kcp.Client {
	t.Helper()
	reads := 0
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"LogicalClusterList","apiVersion":"core.kcp.io/v1alpha1","items":[
{"metadata":{"name":"cluster","annotations":{"kcp.io/cluster":"system:admin"}}},
{"metadata":{"name":"cluster","annotations":{"kcp.io/cluster":"c1","kcp.io/path":"root:team"}}}]}`)
			return
		}
		reads++
		started := 1000
		if restarts {
			started += reads
		}
		fmt.Fprintf(w, `apiserver_request_total{verb="GET"} %[1]d
apiserver_request_duration_seconds_bucket{verb="GET",le="0.1"} %[1]d
apiserver_request_duration_seconds_bucket{verb="GET",le="+Inf"} %[1]d
apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 1048576
process_cpu_seconds_total %[1]d
process_resident_memory_bytes 2097152
process_start_time_seconds %[2]d
`, 100*reads, started)
	}))
	t.Cleanup(s.Close)
	return kcp.New(kcp.Options{
		URL: s.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
	})
}

func TestRead(t *testing.T) {
	top := topologytest.Build(t, `spec:
  clusters: [{name: a, context: a}, {name: b, context: b}]
  etcd: {managed: {quota: 4Gi}}
  rootShard: {cluster: a, url: "https://root.example.com", resources: {limits: {memory: 1Gi}}}
  shards:
  - {name: alpha, cluster: a, url: "https://alpha.example.com"}
  - {name: beta, cluster: b, url: "https://beta.example.com"}
  frontProxies: [{name: main, cluster: a}]
  external: {hostname: kcp.example.com}
`)
	over := make(chan time.Time)
	close(over)
	pauses := 0
	r := &Reader{
		Topology: top, Left: []plan.Unreachable{{Cluster: "b", Err: errors.New("no route to b")}},
		After: func() <-chan time.Time { pauses++; return over },
		Connect: func(c *topology.Component) (*kcp.Client, error) {
			if c.Kind == topology.FrontProxy {
				return nil, errors.New("no certificate")
			}
			return server(t, c.Kind == topology.Shard), nil
		},
	}
	all, err := r.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, pauses, "all servers have the same pause")
	found := map[topology.ID]Component{}
	for _, u := range all {
		found[u.Component] = u
	}
	root := found["root-shard"]
	require.Empty(t, root.Reason)
	require.Positive(t, *root.RequestsPerSecond)
	require.Positive(t, *root.CPU)
	require.InDelta(t, 0.099, *root.P99, 1e-9)
	require.Equal(t, []int64{2 << 20, 1 << 30, 1 << 20, 4 << 30}, []int64{*root.Memory, root.MemoryLimit, *root.Database, root.Quota})
	require.Equal(t, 1, *root.LogicalClusters)

	require.Equal(t, "it has restarted between two readings", found["shard/alpha"].Reason)
	require.Nil(t, found["shard/alpha"].RequestsPerSecond)
	require.NotNil(t, found["shard/alpha"].Memory)
	require.Equal(t, "no route to b", found["shard/beta"].Reason)
	require.Equal(t, "no certificate", found["front-proxy/main"].Reason)
}

func TestReadDoesNotWaitForNothing(t *testing.T) {
	r := &Reader{
		Topology: topologytest.Build(t, ""),
		After: func() <-chan time.Time {
			t.Error("no server answers, so there is no second reading")
			return time.After(0)
		},
		Connect: func(*topology.Component) (*kcp.Client, error) { return nil, errors.New("no certificate") },
	}
	all, err := r.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, all, len(r.Servers()))
	for _, c := range all {
		require.Equal(t, "no certificate", c.Reason)
	}
}

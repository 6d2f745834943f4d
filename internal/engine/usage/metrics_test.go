package usage

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const exposition = `# HELP apiserver_request_total Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",verb="GET"} 10
apiserver_request_total{code="200",resource="a\\"b}c",verb="LIST"} 5 1700000000000
apiserver_request_total{code="0",resource="pods",verb="WATCH"} 100
apiserver_request_duration_seconds_bucket{verb="GET",le="0.1"} 8
apiserver_request_duration_seconds_bucket{verb="GET",le="+Inf"} 10
apiserver_request_duration_seconds_bucket{verb="LIST",le="0.1"} 5
apiserver_request_duration_seconds_bucket{verb="LIST",le="+Inf"} 5
apiserver_request_duration_seconds_bucket{verb="WATCH",le="0.1"} 0
apiserver_request_duration_seconds_bucket{verb="WATCH",le="+Inf"} 100
apiserver_request_duration_seconds_sum{verb="GET"} 1.5
apiserver_storage_objects{resource="apiexports.apis.kcp.io"} 7
apiserver_resource_objects{group="core.kcp.io",resource="shards"} 3
apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 4.096e+06
process_resident_memory_bytes 5.24288e+07
process_cpu_seconds_total 2.5
process_start_time_seconds 1.7e+09
go_goroutines 12
`

func TestReadMetrics(t *testing.T) {
	m, err := readMetrics(strings.NewReader(exposition))
	require.NoError(t, err)
	require.Equal(t, &metrics{
		requests: 15, memory: 50 << 20, cpu: 2.5, started: 1.7e9, database: 4096000,
		buckets: map[float64]float64{0.1: 13, math.Inf(1): 15},
		objects: map[string]float64{"apiexports.apis.kcp.io": 7, "shards.core.kcp.io": 3},
	}, m)
	proxy, err := readMetrics(strings.NewReader(`proxy_request_duration_seconds_count{code="200",method="get"} 4`))
	require.NoError(t, err)
	require.EqualValues(t, 4, proxy.requests)
	for _, broken := range []string{`apiserver_request_total{code="200} 1`, `process_cpu_seconds_total x`,
		`apiserver_request_duration_seconds_bucket{verb="GET"} 1`} {
		_, err := readMetrics(strings.NewReader(broken))
		require.ErrorContains(t, err, "metric", broken)
	}
}

func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	for name, tt := range map[string]struct {
		before, after map[float64]float64
		want          float64
		ok            bool
	}{
		"no requests":         {map[float64]float64{1: 5, inf: 5}, map[float64]float64{1: 5, inf: 5}, 0, false},
		"no metric":           {nil, nil, 0, false},
		"in the first bucket": {nil, map[float64]float64{1: 100, inf: 100}, 0.99, true},
		"only what is new":    {map[float64]float64{1: 50, 2: 50, inf: 50}, map[float64]float64{1: 50, 2: 150, inf: 150}, 1.99, true},
		"beyond the largest":  {nil, map[float64]float64{1: 50, 2: 60, inf: 100}, 2, true},
	} {
		got, ok := quantile(0.99, tt.before, tt.after)
		require.Equal(t, tt.ok, ok, name)
		require.InDelta(t, tt.want, got, 1e-9, name)
	}
}

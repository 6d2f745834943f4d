package monitoring

import (
	"encoding/json"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// panel is a row of the table of panels.
type panel struct {
	title string
	// of are the kinds of components that the panel is about. Nil: all.
	of   []topology.Kind
	unit string
	// expr is the query, and legend the name of its series.
	expr, legend string
}

// Units of Grafana.
const (
	unitBytes   = "bytes"
	unitPercent = "percentunit"
	unitRate    = "reqps"
	unitSeconds = "s"
	unitShort   = "short"
)

// panels is the table of the panels of the dashboard, from left to right, three in a row.
var panels = []panel{
	{"Replicas that answer", nil, unitShort, `sum by (kcp_component) (up{$kcp})`, "{{kcp_component}}"},
	{"Requests to front-proxies, by status", proxies, unitRate,
		`sum by (code) (rate(proxy_request_duration_seconds_count{$kcp}[$window]))`, "{{code}}"},
	{"Duration of writes, 99th percentile", proxies, unitSeconds,
		`histogram_quantile(0.99, sum by (kcp_component, le) (rate(` +
			`proxy_request_duration_seconds_bucket{$kcp,method=~"post|put|patch|delete"}[$window])))`,
		"{{kcp_component}}"},
	{"Logical clusters", shards, unitShort,
		`sum by (shard) (max by (shard, phase) (kcp_logicalcluster_count{$kcp}))`, "{{shard}}"},
	{"Workspaces that are not ready", shards, unitPercent,
		`1 - sum by (shard) (max by (shard, phase) (kcp_workspace_count{$kcp,phase="Ready"}))` +
			` / sum by (shard) (max by (shard, phase) (kcp_workspace_count{$kcp}))`, "{{shard}}"},
	{"APIBindings, by phase", shards, unitShort,
		`sum by (phase) (max by (shard, phase) (kcp_apibinding_phase{$kcp}))`, "{{phase}}"},
	{"Requests to shards", shards, unitRate,
		`sum by (kcp_component) (rate(authentication_attempts{$kcp,kcp_component=~"root-shard|shard/.+"}[$window]))`,
		"{{kcp_component}}"},
	{"Longest queues of controllers", shards, unitShort,
		`topk(5, max by (kcp_component, name) (workqueue_depth{$kcp}))`, "{{kcp_component}} {{name}}"},
	{"Logical clusters that front-proxies know", proxies, unitShort,
		`min by (shard) (kcp_indexed_logicalclusters{$kcp,kcp_component=~"front-proxy/.+"})`, "{{shard}}"},
	{"Memory", nil, unitBytes, `max by (kcp_component) (process_resident_memory_bytes{$kcp})`, "{{kcp_component}}"},
	{"Processors", nil, unitShort, `sum by (kcp_component) (rate(process_cpu_seconds_total{$kcp}[$window]))`,
		"{{kcp_component}}"},
	{"Goroutines", nil, unitShort, `max by (kcp_component) (go_goroutines{$kcp})`, "{{kcp_component}}"},
	{"Data of etcd", shards, unitBytes,
		`max by (kcp_component) (apiserver_storage_size_bytes{$kcp})`, "{{kcp_component}}"},
	{"Data of etcd, of its quota", etcds, unitPercent,
		`max by (kcp_component) (etcd_mvcc_db_total_size_in_bytes{$kcp} / etcd_server_quota_backend_bytes{$kcp})`,
		"{{kcp_component}}"},
	{"Duration of writes to etcd's disk, 99th percentile", etcds, unitSeconds,
		`histogram_quantile(0.99, sum by (kcp_component, le) (rate(` +
			`etcd_disk_wal_fsync_duration_seconds_bucket{$kcp}[$window])))`, "{{kcp_component}}"},
	{"Changes of the leader of etcd", etcds, unitShort,
		`max by (kcp_component) (increase(etcd_server_leader_changes_seen_total{$kcp}[$window]))`, "{{kcp_component}}"},
	{"Objects in physical clusters", []topology.Kind{topology.Workloads}, unitShort,
		`max by (cluster) (kcpctl_leaves{$kcp})`, "{{cluster}}"},
	{"Objects that wait for the controller or a syncer", []topology.Kind{topology.Workloads}, unitShort,
		`max by (kcp_component) (kcpctl_queue_depth{$kcp})`, "{{kcp_component}}"},
}

const (
	panelsInRow = 3
	panelWidth  = 8
	panelHeight = 8
	// schemaVersion is the version of the format of dashboards: of Grafana 10.2. Later releases read it, too.
	schemaVersion = 38
)

// Dashboard returns a dashboard for Grafana. Its data source can be chosen.
func Dashboard(s Subject) ([]byte, error) {
	var out []map[string]any
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	for _, p := range panels {
		if !s.has(p.of) {
			continue
		}
		n := len(out)
		out = append(out, map[string]any{
			"id": n + 1, "type": "timeseries", "title": p.title, "datasource": source,
			"gridPos": map[string]any{"w": panelWidth, "h": panelHeight,
				"x": n % panelsInRow * panelWidth, "y": n / panelsInRow * panelHeight},
			"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit, "min": 0}, "overrides": []any{}},
			"targets": []any{map[string]any{
				"refId": "A", "datasource": source, "expr": s.of(p.expr, "$__rate_interval"), "legendFormat": p.legend,
			}},
		})
	}
	_, suffix, _ := strings.Cut(s.Installation, s.Setup+"-")
	return json.MarshalIndent(map[string]any{
		"uid": "kcp-" + suffix, "title": "kcp " + s.Setup, "tags": []any{"kcp"}, "schemaVersion": schemaVersion,
		"refresh": "1m", "time": map[string]any{"from": "now-6h", "to": "now"}, "panels": out,
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
		}},
	}, "", " ")
}

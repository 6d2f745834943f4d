package monitoring

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// window is how much time the rates in alerts are of. Prometheus scrapes once in a minute or more often.
const window = "5m"

const (
	critical = "critical"
	warning  = "warning"
)

// alert is a row of the table of alerts.
type alert struct {
	name string
	// of are the kinds of components that the alert is about: without any, a cluster has no such alert. Nil: all.
	of []topology.Kind
	// expr is true for as long as after before the alert fires.
	expr, after    string
	severity       string
	summary, check string
}

var (
	shards  = []topology.Kind{topology.RootShard, topology.Shard}
	proxies = []topology.Kind{topology.FrontProxy}
	etcds   = []topology.Kind{topology.Etcd}
	others  = []topology.Kind{
		topology.Etcd, topology.CacheServer, topology.Agent, topology.Workloads, topology.Physical,
	}
)

// alerts is the table of alerts. The check of kcpctl of each has an explanation.
var alerts = []alert{
	{
		name: "KcpNotMonitored", expr: `absent(up{$kcp})`, after: "10m", severity: warning, check: "KCP101",
		summary: "Prometheus finds no pods of $setup.",
	},
	{
		name: "KcpShardDown", of: shards, after: "3m", severity: critical, check: "KCP101",
		expr:    `max by (kcp_component) (up{$kcp,kcp_component=~"root-shard|shard/.+"} or $expected) == 0`,
		summary: "No replica of {{ $labels.kcp_component }} answers: its workspaces cannot be used.",
	},
	{
		name: "KcpFrontProxyDown", of: proxies, after: "3m", severity: critical, check: "KCP101",
		expr:    `max by (kcp_component) (up{$kcp,kcp_component=~"front-proxy/.+"} or $expected) == 0`,
		summary: "No replica of {{ $labels.kcp_component }} answers.",
	},
	{
		name: "KcpComponentDown", of: others, after: "10m", severity: warning, check: "KCP101",
		expr: `max by (kcp_component) (up{$kcp,kcp_component!~"root-shard|shard/.+|front-proxy/.+"} or $expected)` +
			` == 0`,
		summary: "No replica of {{ $labels.kcp_component }} answers.",
	},
	{
		name: "KcpRequestErrors", of: proxies, after: "10m", severity: critical, check: "KCP102",
		expr: `(sum(rate(proxy_request_duration_seconds_count{$kcp,code=~"5.."}[$window])) or vector(0))` +
			` / sum(rate(proxy_request_duration_seconds_count{$kcp}[$window])) > 0.05`,
		summary: "{{ $value | humanizePercentage }} of the requests to front-proxies fail.",
	},
	{
		// Watches are reads, and last for minutes.
		name: "KcpWritesSlow", of: proxies, after: "10m", severity: warning, check: "KCP102",
		expr: `histogram_quantile(0.99, sum by (le) (rate(` +
			`proxy_request_duration_seconds_bucket{$kcp,method=~"post|put|patch|delete"}[$window]))) > 1`,
		summary: "One write in a hundred takes {{ $value | humanizeDuration }} or longer.",
	},
	{
		name: "KcpWorkspacesNotReady", of: shards, after: "30m", severity: warning, check: "KCP125",
		expr: `1 - sum by (shard) (max by (shard, phase) (kcp_workspace_count{$kcp,phase="Ready"}))` +
			` / sum by (shard) (max by (shard, phase) (kcp_workspace_count{$kcp})) > 0.05`,
		summary: "{{ $value | humanizePercentage }} of the workspaces of shard {{ $labels.shard }} are not ready.",
	},
	{
		name: "KcpEtcdNoLeader", of: etcds, after: "1m", severity: critical, check: "KCP102",
		expr:    `max by (kcp_component) (etcd_server_has_leader{$kcp}) == 0`,
		summary: "The members of {{ $labels.kcp_component }} have no leader: nothing can be written.",
	},
	{
		name: "KcpEtcdQuotaNear", of: etcds, after: "10m", severity: warning, check: "KCP103",
		expr: `max by (kcp_component) (etcd_mvcc_db_total_size_in_bytes{$kcp}` +
			` / etcd_server_quota_backend_bytes{$kcp}) > ` + fmt.Sprint(topology.AlmostFull),
		summary: "The data of {{ $labels.kcp_component }} has {{ $value | humanizePercentage }} of the size at which" +
			" etcd refuses writes (spec.etcd.managed.quota).",
	},
	{
		name: "KcpEtcdDiskSlow", of: etcds, after: "10m", severity: warning, check: "KCP102",
		expr: `histogram_quantile(0.99, sum by (kcp_component, le) (rate(` +
			`etcd_disk_wal_fsync_duration_seconds_bucket{$kcp}[$window]))) > 0.5`,
		summary: "One write to the disk in a hundred of {{ $labels.kcp_component }} takes" +
			" {{ $value | humanizeDuration }} or longer.",
	},
	{
		// These metrics are not of kcp, but of the kubelet and of kube-state-metrics.
		name: "KcpMemoryNearLimit", after: "10m", severity: warning, check: "KCP101",
		expr: `max by (pod, container) (` +
			`container_memory_working_set_bytes{namespace="$namespace",pod=~"$setup-.+",container!=""})` +
			` / max by (pod, container) (` +
			`kube_pod_container_resource_limits{namespace="$namespace",pod=~"$setup-.+",resource="memory"}) > 0.9`,
		summary: "Pod {{ $labels.pod }} uses {{ $value | humanizePercentage }} of its memory limit.",
	},
	{
		name: "KcpClusterNotReady", of: []topology.Kind{topology.Workloads}, after: "10m", severity: warning,
		check: "KCP152", expr: `max by (cluster) (kcpctl_cluster_ready{$kcp}) == 0`,
		summary: "The physical cluster {{ $labels.cluster }} is not ready.",
	},
}

// Rules returns the groups of rules about a subject.
func Rules(s Subject) []map[string]any {
	var rules []map[string]any
	for _, a := range slices.Concat(alerts, certificates(s)) {
		if !s.has(a.of) {
			continue
		}
		rules = append(rules, map[string]any{
			"alert": a.name, "for": a.after,
			"expr":   strings.ReplaceAll(s.of(a.expr, window), "$expected", s.expected(a.of)),
			"labels": map[string]any{"severity": a.severity, LabelInstallation: s.Installation},
			"annotations": map[string]any{
				"summary": s.of(a.summary, window), "runbook": "kcpctl explain " + a.check,
			},
		})
	}
	return []map[string]any{{"name": s.Setup, "rules": rules}}
}

// expected returns an expression with the value 0 for each component of some kinds: one that has no pods has no series
// otherwise, and is down, too.
func (s Subject) expected(kinds []topology.Kind) string {
	var out []string
	for _, id := range s.Components {
		if slices.Contains(kinds, id.Kind()) {
			out = append(out, fmt.Sprintf(`label_replace(vector(0), "%s", "%s", "", "")`, LabelComponent, id))
		}
	}
	return strings.Join(out, " or ")
}

// certificates returns the alert about certificates. No metric has their end: the metric of kcp for certificates of
// clients also counts short-lived ones, such as kcpctl's own. The end is known when the rules are made.
func certificates(s Subject) []alert {
	if s.RenewBy.IsZero() {
		return nil
	}
	return []alert{{
		name: "KcpCertificateEnds", of: []topology.Kind{topology.RootShard}, after: "1m", severity: warning,
		check: "KCP131", expr: fmt.Sprintf("vector(time()) > %d", s.RenewBy.Unix()),
		summary: "A certificate of $setup, " + s.Certificate + ", was not renewed in time. kcpctl up renews it.",
	}}
}

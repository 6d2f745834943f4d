// Package monitoring has what a Prometheus should know of a setup: which metrics it keeps, alerts, and a dashboard.
package monitoring

import (
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// The labels that all series of a setup get. The component is its ID, such as shard/alpha.
const (
	LabelInstallation = "kcp_installation"
	LabelComponent    = "kcp_component"
)

// kept are the metrics that a Prometheus keeps. A shard without workspaces has 25,000 series, and one with 3,000
// workspaces 160,000 (kcp#4007); these do not grow with workspaces.
var kept = []string{
	"go_goroutines", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds",
	// Shards. kcp counts its requests by resource; how many were authenticated tells their rate in three series.
	"authentication_attempts", "apiserver_storage_size_bytes",
	"kcp_apibinding_phase", "kcp_logicalcluster_count", "kcp_workspace_count", "workqueue_depth",
	// Front-proxies.
	"kcp_indexed_logicalclusters",
	"proxy_request_duration_seconds_bucket", "proxy_request_duration_seconds_count",
	// etcd.
	"etcd_disk_wal_fsync_duration_seconds_bucket", "etcd_mvcc_db_total_size_in_bytes", "etcd_server_has_leader",
	"etcd_server_leader_changes_seen_total", "etcd_server_quota_backend_bytes",
	// The controller of workloads and syncers.
	"kcpctl_cluster_ready", "kcpctl_leaves", "kcpctl_queue_depth",
}

// Kept returns a regular expression for the names of the metrics that a Prometheus keeps.
func Kept() string { return strings.Join(kept, "|") }

// Subject is the components of an installation on a cluster, about which alerts and dashboards are.
type Subject struct {
	Setup, Installation, Namespace string
	// Components are the ones whose metrics Prometheus reads.
	Components []topology.ID
	// RenewBy is when kcpctl should have renewed the first certificate of the setup. Certificate names it.
	RenewBy     time.Time
	Certificate string
}

// has reports whether one of the components is of one of some kinds, or kinds is nil.
func (s Subject) has(kinds []topology.Kind) bool {
	return kinds == nil ||
		slices.ContainsFunc(s.Components, func(id topology.ID) bool { return slices.Contains(kinds, id.Kind()) })
}

// of returns an expression about the subject. In the tables, $kcp stands for the installation, and $window for how much
// time a rate is of.
func (s Subject) of(expr, window string) string {
	return strings.NewReplacer("$kcp", LabelInstallation+`="`+s.Installation+`"`, "$window", window,
		"$namespace", s.Namespace, "$setup", s.Setup).Replace(expr)
}

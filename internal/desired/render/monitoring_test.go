package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

const monitored = `spec:
  cacheServer: {etcd: {managed: {}}}
  shards: [{name: alpha}]
  virtualWorkspaces: [{name: alpha, shard: alpha}]
  networkPolicies: {metricsClients: {kubernetes.io/metadata.name: monitoring}}
  workloads: {clusters: [{name: c1}]}
  monitoring: `

// of returns the objects of a component for monitoring.
func ofMonitoring(objects []render.Object, cluster string) []render.Object {
	var out []render.Object
	for _, o := range objects {
		if o.Component == topology.IDOf(topology.Monitoring, cluster) {
			out = append(out, o)
		}
	}
	return out
}

// The objects of a Prometheus with and without its operator.
func TestMonitoring(t *testing.T) {
	for name, text := range map[string]string{
		"plain": "{rules: true, dashboard: true}", "operator": "{prometheusOperator: {labels: {release: prometheus}}, rules: true}",
	} {
		_, _, objects := rendered(t, monitored+text)
		var got string
		for _, o := range ofMonitoring(objects, "default") {
			require.NoError(t, render.Strict(o))
			got += masked(t, o)
		}
		testutil.Golden(t, "monitoring-"+name+".yaml", []byte(got))
	}
}

// The certificate of Prometheus has no group, and its user only the role for metrics.
func TestMonitoringMayOnlyReadMetrics(t *testing.T) {
	top, _, objects := rendered(t, monitored+"{}")
	c := top.Component("monitoring/default")
	require.Equal(t, "kcpctl:metrics:demo", c.User())
	bindings := 0
	for _, o := range objects {
		subjects, _ := o.Object["subjects"].([]any)
		for _, s := range subjects {
			if s.(map[string]any)["name"] == c.User() {
				bindings++
				require.Equal(t, c.User(), o.Object["roleRef"].(map[string]any)["name"])
				require.Equal(t, topology.RootWorkspace, o.Workspace)
			}
		}
	}
	require.Equal(t, 1, bindings)
}

// Without the field, and on this machine, nothing changes.
func TestNoMonitoring(t *testing.T) {
	top, _, _ := rendered(t, "spec: {shards: [{name: alpha}]}")
	require.Empty(t, top.OfKind(topology.Monitoring))
	for _, c := range top.Components {
		require.False(t, c.Monitored, c.ID())
	}
}

// Each cluster with a kcp server has what its Prometheus needs. The rights in kcp and the dashboard exist once.
func TestMonitoringOfSeveralClusters(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {url: "https://root.example.com:6443"}
  shards: [{name: alpha, cluster: us, url: "https://alpha.example.com:6443"}]
  monitoring: {rules: true, dashboard: true}
`)
	names := func(cluster string) (out []string) {
		for _, o := range ofMonitoring(objects, cluster) {
			out = append(out, o.GetKind()+" "+o.GetName())
		}
		return out
	}
	require.Equal(t, []string{"ClusterRole kcpctl:metrics:demo", "ClusterRoleBinding kcpctl:metrics:demo", "Secret demo-monitoring-eu",
		"ConfigMap demo-monitoring-eu", "ConfigMap demo-monitoring-eu-dashboard"}, names("eu"))
	require.Equal(t, []string{"Secret demo-monitoring-us", "ConfigMap demo-monitoring-us"}, names("us"))
}

// Only with monitoring, etcds and the cache server serve metrics without certificates that may do everything.
func TestPortsOfMetrics(t *testing.T) {
	top, _, objects := rendered(t, monitored+"{}")
	for _, o := range objects {
		pod, ok := podOf(t, o)
		if !ok {
			continue
		}
		c, args := top.Component(o.Component), pod.Spec.Containers[0].Args
		switch c.Kind {
		case topology.Etcd:
			require.Contains(t, args, "--listen-metrics-urls=http://0.0.0.0:2381")
			require.EqualValues(t, 2381, c.MetricsPort())
		case topology.CacheServer:
			require.Contains(t, args, "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics")
		}
	}
	n := networkOf(t, top, objects)
	labels := map[string]any{"kubernetes.io/metadata.name": "monitoring"}
	prometheus := map[string]any{"namespaceSelector": map[string]any{"matchLabels": labels}}
	for _, c := range top.Running() {
		found := false
		for _, rule := range n.policies[c.ID()]["ingress"].([]any) {
			r := rule.(map[string]any)
			port := r["ports"].([]any)[0].(map[string]any)["port"]
			from, limited := r["from"].([]any)
			found = found || port == int64(c.MetricsPort()) && (!limited || from[0].(map[string]any)["namespaceSelector"] != nil)
			if limited && c.Kind == topology.Etcd && port == int64(2381) {
				require.Equal(t, prometheus, from[0])
			}
		}
		require.True(t, found, "Prometheus reaches the metrics of %s", c.ID())
	}
}

// Alerts expect only components whose metrics Prometheus reads: not a paused agent, and no front-proxy that only knows
// tokens, which is not scraped.
func TestAlertsOfComponentsThatAreNotScraped(t *testing.T) {
	const spec = `spec:
  frontProxies:
  - {name: main}
  - {name: users, authentication: {clientCertificates: false, tokenFile: {secret: tokens}}}
  - {name: open, authentication: {clientCertificates: false, serviceAccounts: false}}
  agents:
  - {name: widgets, paused: %s, workspace: "root:widgets",
     publishedResources: [{name: widgets, spec: {resource: {kind: Widget, apiGroup: example.com, versions: [v1]}}}]}
  monitoring: {rules: true, prometheusOperator: {}}
`
	for paused, expected := range map[string]bool{"false": true, "true": false} {
		_, _, objects := rendered(t, fmt.Sprintf(spec, paused))
		for _, o := range ofMonitoring(objects, "default") {
			y, err := o.YAML()
			require.NoError(t, err)
			switch o.GetKind() {
			case "PrometheusRule":
				require.Equal(t, expected, strings.Contains(string(y), "agent/widgets"))
				require.Contains(t, string(y), `"front-proxy/open"`)
				require.NotContains(t, string(y), "front-proxy/users")
			case "PodMonitor":
				require.Contains(t, string(y), "regex: front-proxy/users")
				require.NotContains(t, string(y), "front-proxy/open")
			}
		}
	}
}

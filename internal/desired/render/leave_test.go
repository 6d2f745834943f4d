package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A conflict is only said to be about a field of the setup file if the file has it.
func TestLeave(t *testing.T) {
	top := topologytest.Build(t, `spec:
  cacheServer: {}
  defaults: {podTemplate: {metadata: {annotations: {example.com/team: a}}}}
  frontProxies:
  - name: main
    podTemplate: {spec: {containers: [{name: kcp, env: [{name: A, value: b}]}], tolerations: [{key: a}]}}
    service: {metadata: {labels: {team: a}}, externalTrafficPolicy: Local, ports: [{port: 6443, nodePort: 30000}],
      loadBalancerSourceRanges: [10.0.0.0/8]}
`)
	const container = `spec.template.spec.containers[name="kcp"]`
	for _, tc := range []struct {
		component  topology.ID
		kind, path string
		want       string
	}{
		{"root-shard", "Deployment", "spec.replicas", "set replicas: null for root-shard"},
		{"cache-server", "Deployment", "spec.replicas", ""}, // its etcd is embedded
		{"etcd/root", "StatefulSet", "spec.replicas", ""},
		{"root-shard", "Deployment", container + `.image`, ""},
		{"root-shard", "Deployment", "spec.template.metadata.annotations.example.com/team", "remove it from the podTemplate of root-shard"},
		{"root-shard", "Deployment", "spec.template.metadata.annotations.example.com/team2", ""},
		{"front-proxy/main", "Deployment", container + `.env[name="A"].value`, "remove it from the podTemplate of front-proxy/main"},
		{"front-proxy/main", "Deployment", container + `.env[name="B"].value`, ""},
		{"front-proxy/main", "Deployment", "spec.template.spec.tolerations", "remove it from the podTemplate of front-proxy/main"},
		{"front-proxy/main", "Service", "spec.externalTrafficPolicy", "remove it from the service of front-proxy/main"},
		{"front-proxy/main", "Service", `spec.ports[port=6443,protocol="TCP"].nodePort`, "remove it from the service of front-proxy/main"},
		{"front-proxy/main", "Service", `spec.ports[port=6443,protocol="TCP"].targetPort`, ""},
		{"front-proxy/main", "Service", `spec.loadBalancerSourceRanges[="10.0.0.0/8"]`, "remove it from the service of front-proxy/main"},
		{"front-proxy/main", "Service", "metadata.labels.team", "remove it from the service of front-proxy/main"},
		{"front-proxy/main", "Service", "spec.type", ""},
	} {
		require.Equal(t, tc.want, render.Leave(top.Component(tc.component), tc.kind, tc.path), "%s %s", tc.component, tc.path)
	}
}

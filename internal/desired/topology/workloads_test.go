package topology_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const workloads = `spec:
  workloads:
    clusters: [{name: c1, context: eu}, {name: edge, context: edge, syncMode: None}]
  workspaces:
  - {name: compute}
  - {name: before}
  - {name: team, type: "root:compute:workload", workspaces: [{name: below}]}
  - {name: after}
`

func TestWorkloads(t *testing.T) {
	top := topologytest.Build(t, workloads)
	controller, c1, team := top.Component("workloads/controller"), top.Component("cluster/c1"), top.Component("workspace/root:team")
	require.Equal(t, "kcpctl:controller:demo", controller.User())
	require.Equal(t, "kcpctl:syncer:demo:c1", c1.User())
	require.Contains(t, controller.Needs, topology.ID("workspace/root:compute"))
	require.Contains(t, c1.Needs, controller.ID())
	require.Contains(t, team.Needs, controller.ID(), "it creates the type")
	require.NotContains(t, team.Needs, c1.ID(), "a lost cluster must not block it")
	require.NotContains(t, top.Component("workspace/root:before").Needs, controller.ID())

	position := map[topology.ID]int{}
	for i, c := range top.Components {
		position[c.ID()] = i
	}
	for _, c := range top.Components {
		for _, need := range c.Needs {
			require.Less(t, position[need], position[c.ID()], "%s needs %s", c.ID(), need)
		}
	}
	require.True(t, slices.ContainsFunc(top.EdgesFrom(controller), func(e topology.Edge) bool {
		return e.Servers[0].URL == "https://demo-front-proxy-main.kcp.svc.cluster.local:6443/clusters/root:compute"
	}))
}

func TestKindsWithUsers(t *testing.T) {
	seen := map[topology.Kind]bool{}
	text := strings.Replace(topologytest.EveryKind, "workloads: {}", "workloads: {clusters: [{name: c1, context: eu}]}\n  monitoring: {rules: true}", 1)
	for _, c := range topologytest.Build(t, text).Components {
		seen[c.Kind] = true
		require.Equal(t, c.Kind.HasUser(), c.User() != "", c.ID())
	}
	require.True(t, seen[topology.Physical] && seen[topology.Monitoring] && seen[topology.Agent])
}

// A syncer that runs in its physical cluster has a place there, and dials kcp from it.
func TestSyncers(t *testing.T) {
	const text = `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: home, context: home}, {name: us, context: us, namespace: tenants}]
  rootShard: {cluster: home, virtualWorkspaceURL: "https://root.example.com:6443"}
  workloads:
    clusters:
    - {name: c1, context: eu}
    - {name: edge, context: edge, syncMode: Pull}
    - {name: c3, cluster: us, syncMode: Pull}
`
	top := topologytest.Build(t, text)
	c1, edge, c3 := top.Component("cluster/c1"), top.Component("cluster/edge"), top.Component("cluster/c3")
	require.Equal(t, []bool{false, true, true}, []bool{c1.Runs(), edge.Runs(), c3.Runs()})
	require.Equal(t, topology.Cluster{Name: "edge", Context: "edge", Namespace: "kcpctl-syncer"}, edge.Cluster)
	require.Equal(t, "tenants", c3.Cluster.Namespace)
	require.Equal(t, "us", c3.Physical.Context)
	require.Equal(t, "demo-syncer-edge", edge.Object())
	require.Subset(t, edge.Needs, []topology.ID{"base/edge", "workloads/controller", "front-proxy/main"})
	require.NotContains(t, top.Running(), c1)
	require.Equal(t, []*topology.Component{c1}, top.Idle(topology.Physical))
	require.Empty(t, top.EdgesFrom(c1), "the controller has its syncer")
	require.Empty(t, top.Credentials(c1))

	var dialled []string
	for _, e := range top.EdgesFrom(edge) {
		for _, s := range e.Servers {
			dialled = append(dialled, s.URL)
		}
	}
	require.Equal(t, []string{"https://kcp.example.com:6443/clusters/root:compute", "https://root.example.com:6443"}, dialled)
	addresses := 0
	for _, a := range top.RemoteAddresses() {
		if a.From.Name == "edge" {
			addresses++
			require.Contains(t, a.Reason(), "cluster: ")
		}
	}
	require.Equal(t, 2, addresses)

	local := topologytest.LocalOf(top.Setup)
	require.True(t, local.Component("cluster/edge").Cluster.Local)
	require.Len(t, local.Clusters, 1)
}

func TestPhysicalPlaces(t *testing.T) {
	name, ok := topology.IsPhysical(topology.OnPhysical("c1"))
	require.True(t, ok)
	require.Equal(t, "c1", name)
	_, ok = topology.IsPhysical("root:cluster")
	require.False(t, ok)
}

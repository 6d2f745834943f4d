package topology_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/internal/topology"
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
	require.Subset(t, team.Needs, []topology.ID{controller.ID(), c1.ID()}, "the controller creates the type")
	require.NotContains(t, team.Needs, topology.ID("cluster/edge"), "the user starts its syncer, maybe later")
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

func TestPhysicalPlaces(t *testing.T) {
	name, ok := topology.IsPhysical(topology.OnPhysical("c1"))
	require.True(t, ok)
	require.Equal(t, "c1", name)
	_, ok = topology.IsPhysical("root:cluster")
	require.False(t, ok)
}

package topology_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A workspace that binds the APIExport of an agent waits for it. An agent waits for the workspaces that it uses.
func TestAgentsAndWorkspacesWaitForEachOther(t *testing.T) {
	top := topologytest.Build(t, topologytest.Header+`spec:
  workspaces:
  - name: services
  - {name: team-a, bindings: [{export: "root:services:widgets:widgets"}]}
  - name: team-b
  agents:
  - name: widgets
    workspace: root:services:widgets
    bind: ["root:team-b"]
    publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget}, naming: {name: "{{ .ClusterName }}"}}}]
`)
	const widgets = topology.ID("agent/widgets")
	of := func(id topology.ID) []topology.ID { return top.Component(id).Needs }
	require.Contains(t, of(widgets), topology.ID("workspace/root:services"))
	require.Contains(t, of(widgets), topology.ID("workspace/root:team-b"))
	require.NotContains(t, of(widgets), topology.ID("workspace/root:team-a"))
	require.Contains(t, of("workspace/root:team-a"), widgets)
	require.NotContains(t, of("workspace/root:team-b"), widgets)
}

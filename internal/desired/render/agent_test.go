package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// A workspace that an agent needs is created once if it does not exist, unless the setup file has it.
func TestWorkspacesOfAgents(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  workspaces: [{name: team-a}]
  agents:
  - name: widgets
    workspace: root:widgets
    bind: [root, "root:widgets", "root:team-a", "root:team-b"]
    publishedResources:
    - {name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget, versions: [v1]}}}
`)
	created := map[string]string{}
	for _, o := range objects {
		if o.GetKind() == "Workspace" {
			require.NotContains(t, created, o.GetName())
			created[o.GetName()] = o.GetAnnotations()[topology.AnnotationUse]
		}
	}
	require.Equal(t, map[string]string{"widgets": topology.UseExisting, "team-a": "", "team-b": topology.UseExisting}, created)
}

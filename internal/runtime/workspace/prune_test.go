package workspace

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// A workspace is kept with what users have there. The syncer of a cluster that the setup no longer has has no rights
// there.
func TestRightsOfRemovedComponentsAreNotKept(t *testing.T) {
	binding := func(name string, of topology.ID) plan.Item {
		return plan.Item{Action: plan.Delete, Component: of, Ref: plan.Ref{
			Workspace: "root:compute", GroupVersionKind: kind.ClusterRoleBinding.GroupVersionKind, Name: name}}
	}
	previous := []plan.Item{
		{Action: plan.Delete, Component: "workspace/root:compute", Ref: plan.Ref{
			Workspace: "root", GroupVersionKind: kcpapi.Workspace.GroupVersionKind, Name: "compute"}},
		binding("demo:access", "workspace/root:compute"),
		binding("kcpctl:syncer:demo:edge", "cluster/edge"),
		binding("kcpctl:agent:demo-widgets", "agent/widgets"),
		binding("demo:kubeconfig:ops:view", "kubeconfig/ops"),
	}
	got, err := prune(nil, previous, nil)
	require.NoError(t, err)
	actions := map[string]plan.Action{}
	for _, it := range got {
		actions[it.Name] = it.Action
	}
	require.Equal(t, map[string]plan.Action{
		"compute": plan.Keep, "demo:access": plan.Keep,
		"kcpctl:syncer:demo:edge": plan.Delete, "kcpctl:agent:demo-widgets": plan.Delete,
		"demo:kubeconfig:ops:view": plan.Delete,
	}, actions)
}

package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestKeysAreOutOfReachOfAgents(t *testing.T) {
	const agents = `  agents: [{name: widgets, cluster: services, workspace: root:widgets,
    publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget}}}]}]
`
	for name, tc := range map[string]struct {
		spec  string
		runs  bool
		want  check.Status
		cause string
	}{
		"the namespace of the keys": {
			withAgent, false, check.Fail, "agent/widgets would run in namespace kcp, and could read and overwrite the private keys of kcp there",
		},
		"an agent that runs there": {
			withAgent, true, check.Warn, "agent/widgets runs in namespace kcp, and may read and overwrite the private keys of kcp there",
		},
		"another namespace": {
			"  clusters: [{name: home}, {name: services, namespace: agents}]\n" + agents, false, check.Warn,
			"agent/widgets may read all Secrets of the Kubernetes cluster, also those with the private keys of kcp in namespace kcp",
		},
		"another cluster": {
			"  external: {hostname: kcp.example.com}\n  rootShard: {virtualWorkspaceURL: \"https://root.example.com:6443\"}\n" +
				"  clusters: [{name: home}, {name: services, context: services}]\n" + agents, false, check.OK, "",
		},
		"keys in a directory": {
			"  pki: {store: Directory}\n" + withAgent, false, check.Skipped, "the keys of kcp are not on a cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := topologytest.Build(t, topologytest.Header+"spec:\n"+tc.spec)
			rt := fakeruntime.New(t, top)
			rt.Place.Clusters = []check.Cluster{&fakeruntime.Cluster{Label: top.Home.Name}}
			if tc.runs {
				c := top.Component("agent/widgets")
				deployment := in("apps/v1", "Deployment", map[string]any{})
				deployment.SetName(c.Object())
				rt.Made = []plan.Item{{Ref: plan.Ref{
					Cluster: top.Home.Name, Namespace: top.Home.Namespace, Name: c.Object(),
					GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
				}, Live: deployment}}
			}
			found, ok := check.Find("KCP046")
			require.True(t, ok)
			r := check.Run(t.Context(), &check.Subject{Topology: top, Runtime: rt, Now: time.Now}, []check.Check{found}).Results[0]
			require.Equal(t, tc.want, r.Status, r.Cause)
			require.Equal(t, tc.cause, r.Cause)
		})
	}
}

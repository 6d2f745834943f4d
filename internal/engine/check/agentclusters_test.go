package check_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// agentHere is an agent on this machine that publishes an API of a cluster.
const agentHere = topologytest.Header + `spec:
  external: {hostname: localhost}
  clusters: [{name: home, context: services, namespace: agents}]
  agents:
  - name: widgets
    workspace: root:widgets
    publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget, versions: [v1]}, naming: {name: "{{ .ClusterName }}"}}}]
`

// serviceCluster is a cluster whose APIs the agent publishes.
type serviceCluster struct {
	physicalCluster
	kinds map[schema.GroupKind][]string
}

func (c serviceCluster) Versions(_ context.Context, kind schema.GroupKind) ([]string, error) {
	if served := c.kinds[kind]; len(served) > 0 {
		return served, nil
	}
	return nil, fmt.Errorf("%s is not served", kind)
}

func TestClustersOfAgentsOnThisMachine(t *testing.T) {
	widget := map[schema.GroupKind][]string{{Group: "example.com", Kind: "Widget"}: {"v1"}}
	lost, refused := errors.New("connection refused"), errors.New("not allowed: create clusterroles")
	type statuses [2]check.Status // of KCP042 and KCP045
	for name, tc := range map[string]struct {
		is     serviceCluster
		known  bool
		want   statuses
		causes [2]string
	}{
		"well":        {serviceCluster{kinds: widget}, false, statuses{check.OK, check.OK}, [2]string{}},
		"no kind":     {serviceCluster{}, false, statuses{check.Fail, check.OK}, [2]string{"agent/widgets: PublishedResource widgets: Widget.example.com is not served"}},
		"not allowed": {serviceCluster{physicalCluster{refused: refused}, widget}, false, statuses{check.OK, check.Fail}, [2]string{"", refused.Error()}},
		"it does not answer": {
			serviceCluster{physicalCluster{err: lost}, widget}, false, statuses{check.Fail, check.Fail}, [2]string{lost.Error(), lost.Error()},
		},
		"it is lost": {serviceCluster{physicalCluster{err: lost}, widget}, true, statuses{check.Warn, check.Warn}, [2]string{lost.Error(), lost.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			top := topologytest.BuildLocal(t, agentHere)
			objects, err := render.Objects(top, pkitest.Issue(t, top, time.Now()))
			require.NoError(t, err)
			rt := fakeruntime.New(t, top)
			rt.Place.Services = []check.Physical{{Name: "home", PhysicalCluster: tc.is, Registered: tc.known}}
			for i, id := range []string{"KCP042", "KCP045"} {
				c, ok := check.Find(id)
				require.True(t, ok)
				r := check.Run(t.Context(), &check.Subject{Topology: top, Runtime: rt, Objects: objects, Now: time.Now}, []check.Check{c}).Results[0]
				require.Equal(t, tc.want[i], r.Status, r.Cause)
				if tc.causes[i] != "" {
					require.Contains(t, r.Cause, tc.causes[i])
				}
			}
		})
	}
}

package check_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
)

// unconfined is a cluster that does not serve NetworkPolicies.
type unconfined struct{ physicalCluster }

func (unconfined) Versions(context.Context, schema.GroupKind) ([]string, error) {
	return nil, errors.New("the API server has no API group networking.k8s.io")
}

// confinedCluster is c1 with PriorityClasses and nodes: batch, and one node in the pool tenants.
func confinedCluster(p check.PhysicalCluster) check.Physical {
	return check.Physical{Name: "c1", PhysicalCluster: p, List: func(_ context.Context, at kcp.Place, selector string) ([]unstructured.Unstructured, error) {
		one := []unstructured.Unstructured{{Object: map[string]any{"kind": at.Kind, "metadata": map[string]any{"name": "batch"}}}}
		if selector != "" && selector != "pool=tenants" {
			return nil, nil
		}
		return one, nil
	}}
}

func TestTenancyThatClustersCanHave(t *testing.T) {
	well := confinedCluster(physicalCluster{})
	refusing := confinedCluster(physicalCluster{})
	refusing.List = func(_ context.Context, at kcp.Place, _ string) ([]unstructured.Unstructured, error) {
		if at.Kind == "Node" {
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
		}
		return nil, errors.New("timeout")
	}
	lost := confinedCluster(physicalCluster{err: errors.New("connection refused")})
	tenancy := func(fields map[string]any) map[string]any { return map[string]any{"tenancy": fields} }
	needs := tenancy(map[string]any{"priorityClasses": []any{"batch", "high"}, "nodeSelector": map[string]any{"pool": "tenants"}})
	for name, tc := range map[string]struct {
		spec    map[string]any
		cluster check.Physical
		only    []topology.ID
		status  check.Status
		cause   string
	}{
		"the default":               {map[string]any{}, well, nil, check.OK, ""},
		"all is there":              {tenancy(map[string]any{"priorityClasses": []any{"batch"}, "nodeSelector": map[string]any{"pool": "tenants"}}), well, nil, check.OK, ""},
		"no NetworkPolicies":        {map[string]any{}, confinedCluster(unconfined{}), nil, check.Fail, "cluster/c1: tenancy.isolation Workspace needs NetworkPolicies: the API server has no API group networking.k8s.io"},
		"no isolation":              {tenancy(map[string]any{"isolation": "None"}), confinedCluster(unconfined{}), nil, check.OK, ""},
		"a PriorityClass":           {needs, well, nil, check.Warn, "cluster/c1: PriorityClasses of tenancy.priorityClasses do not exist: high: pods that name them are refused"},
		"no nodes":                  {tenancy(map[string]any{"nodeSelector": map[string]any{"pool": "big", "a": "b"}}), well, nil, check.Warn, "cluster/c1: no node has the labels a=b,pool=big of tenancy.nodeSelector: pods of workspaces stay Pending"},
		"the user may not know":     {tenancy(map[string]any{"nodeSelector": map[string]any{"pool": "big"}}), refusing, nil, check.Skipped, "cluster/c1: the user may not list nodes"},
		"a list that fails":         {needs, refusing, nil, check.Warn, "cluster/c1: list PriorityClasses: timeout"},
		"another check says this":   {needs, lost, nil, check.OK, ""},
		"left alone":                {needs, well, []topology.ID{"cluster/c2"}, check.Skipped, "the setup has no physical clusters"},
		"not in the setup any more": {needs, check.Physical{Name: "c9"}, nil, check.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTopology(t, "  workloads: {clusters: [{name: c1}]}\n")
			cl := in("workloads.kcp.dev/v1alpha1", "Cluster", map[string]any{"metadata": map[string]any{"name": "c1"}, "spec": tc.spec})
			rt := fakeruntime.New(t, top)
			rt.Place.Physical = []check.Physical{tc.cluster}
			c, ok := check.Find("KCP053")
			require.True(t, ok)
			s := &check.Subject{Topology: top, Runtime: rt, Objects: []render.Object{{Unstructured: cl, Workspace: "root:compute"}}, Now: time.Now, Only: tc.only}
			r := check.Run(t.Context(), s, []check.Check{c})
			require.Equal(t, tc.status, r.Results[0].Status, r.Results[0].Cause)
			require.Equal(t, tc.cause, r.Results[0].Cause)
		})
	}
}

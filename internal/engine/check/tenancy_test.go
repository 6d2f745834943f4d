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

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
)

// serving is a cluster that serves ValidatingAdmissionPolicies in some versions.
type serving struct {
	physicalCluster
	versions []string
}

func (o serving) Versions(context.Context, schema.GroupKind) ([]string, error) {
	if o.versions == nil {
		return nil, errors.New("the API server does not serve the kind")
	}
	return o.versions, nil
}

// withClasses is c1 with PriorityClasses and nodes: batch, and one node in the pool tenants. Default is the
// PriorityClass that pods have by default.
func withClasses(p check.PhysicalCluster, byDefault string) check.Physical {
	return check.Physical{Name: "c1", PhysicalCluster: p, List: func(_ context.Context, at plan.Ref, selector string) ([]unstructured.Unstructured, error) {
		one := []unstructured.Unstructured{{Object: map[string]any{"kind": at.Kind, "metadata": map[string]any{"name": "batch"}, "globalDefault": byDefault == "batch"}}}
		if selector != "" && selector != "pool=tenants" {
			return nil, nil
		}
		return one, nil
	}}
}

func TestClustersCanEnforceTheRulesForPods(t *testing.T) {
	current := serving{versions: []string{"v1"}}
	well, batch := withClasses(current, ""), withClasses(current, "batch")
	refusing := withClasses(current, "")
	refusing.List = func(_ context.Context, at plan.Ref, _ string) ([]unstructured.Unstructured, error) {
		if at.Kind == "Node" {
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
		}
		return nil, errors.New("timeout")
	}
	lost := withClasses(physicalCluster{err: errors.New("connection refused")}, "")
	const needs = "{priorityClasses: [batch, high], nodeSelector: {pool: tenants}}"
	for name, tc := range map[string]struct {
		pods    string
		cluster check.Physical
		only    []topology.ID
		status  check.Status
		cause   string
	}{
		"no rules":                  {"null", withClasses(serving{}, ""), nil, check.Skipped, "the setup has no rules for pods in physical clusters"},
		"all is there":              {"{priorityClasses: [batch], nodeSelector: {pool: tenants}}", batch, nil, check.OK, ""},
		"nothing is permitted":      {"{}", well, nil, check.OK, ""},
		"no policies":               {"{}", withClasses(serving{}, ""), nil, check.Fail, "cluster/c1: tenancy.pods needs ValidatingAdmissionPolicies: the API server does not serve the kind"},
		"policies of a beta":        {"{}", withClasses(serving{versions: []string{"v1beta1"}}, ""), nil, check.Fail, "cluster/c1: tenancy.pods needs ValidatingAdmissionPolicies in version v1, and the API server has [v1beta1]"},
		"the default PriorityClass": {"{}", batch, nil, check.Fail, "cluster/c1: all pods have the PriorityClass batch, the default of the cluster, and tenancy.pods.priorityClasses does not have it: all pods of workspaces would be refused"},
		"a PriorityClass":           {needs, well, nil, check.Warn, "cluster/c1: PriorityClasses of tenancy.pods.priorityClasses do not exist: high: pods that name them are refused"},
		"no nodes":                  {"{nodeSelector: {pool: big, a: b}}", well, nil, check.Warn, "cluster/c1: no node has the labels a=b,pool=big of tenancy.pods.nodeSelector: pods of workspaces stay Pending"},
		"a list that fails":         {needs, refusing, nil, check.Warn, "cluster/c1: list PriorityClasses: timeout"},
		"another check says this":   {needs, lost, nil, check.OK, ""},
		"left alone":                {needs, well, []topology.ID{"cluster/c2"}, check.Skipped, "the setup has no rules for pods in physical clusters"},
		"not in the setup any more": {needs, check.Physical{Name: "c9"}, nil, check.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTopology(t, "  workloads: {clusters: [{name: c1, tenancy: {pods: "+tc.pods+"}}]}\n")
			rt := fakeruntime.New(t, top)
			rt.Place.Physical = []check.Physical{tc.cluster}
			c, ok := check.Find("KCP053")
			require.True(t, ok)
			s := &check.Subject{Topology: top, Runtime: rt, Now: time.Now, Only: tc.only}
			r := check.Run(t.Context(), s, []check.Check{c})
			require.Equal(t, tc.status, r.Results[0].Status, r.Results[0].Cause)
			require.Equal(t, tc.cause, r.Results[0].Cause)
		})
	}
}

package kube

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// twoAgents has two places on one cluster, with an agent in each.
const twoAgents = twoPlaces + `  agents:
  - {name: widgets, cluster: eu, workspace: root:services, apiExport: widgets.example.com, publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget, versions: [v1]}}}]}
  - {name: gadgets, cluster: us, workspace: root:services, apiExport: gadgets.example.com, publishedResources: [{name: gadgets, spec: {resource: {apiGroup: example.com, kind: Gadget, versions: [v1]}}}]}
`

// Objects without a namespace belong to the place that applied them: they are pruned and deleted with it, and with no
// other.
func TestClusterScopedObjectsBelongToAPlace(t *testing.T) {
	f := newRecorded(t, twoAgents)
	r := f.runtime(f.topology)
	apiserver.Remove(t, r.clusters.home.Dynamic.Resource(kind.CustomResourceDefinition.GVR()), kind.PublishedResource.Definition)
	f.up(r, run.PlanOptions{})
	r = f.runtime(f.topology)
	p := f.up(r, run.PlanOptions{})
	require.Empty(t, changes(p), "a plan finds what it does not have to change")
	mine := func(agent string) (out []string) {
		for _, k := range []kind.Kind{kind.ClusterRole, kind.ClusterRoleBinding, kind.PublishedResource} {
			all, err := r.clusters.home.List(t.Context(), k, topology.LabelSetup+"="+r.topology.Name)
			require.NoError(t, err)
			for _, o := range all {
				if o.GetLabels()[topology.LabelName] == agent {
					out = append(out, k.Kind+"/"+o.GetName())
				}
			}
		}
		return out
	}
	widgets, gadgets := mine("widgets"), mine("gadgets")
	require.GreaterOrEqual(t, len(widgets), 3)
	require.Len(t, gadgets, len(widgets))

	s := *f.topology.Setup
	s.Spec.Agents = slices.Clone(s.Spec.Agents)[1:]
	next := f.runtime(topology.Build(&s))
	p = f.up(next, run.PlanOptions{})
	for _, c := range changes(p) {
		require.True(t, strings.HasPrefix(c, "delete ") && !strings.Contains(c, "gadgets"), c)
	}
	for _, o := range widgets {
		require.Contains(t, changes(p), "delete "+o)
	}
	require.Empty(t, mine("widgets"))
	require.Equal(t, gadgets, mine("gadgets"))

	// A run that is limited to other components deletes nothing of the last agent, and the next run still finds it all.
	s.Spec.Agents = nil
	none := f.runtime(topology.Build(&s))
	p, err := none.Plan(t.Context(), f.objects(none), run.PlanOptions{})
	require.NoError(t, err)
	for i := range p.Items {
		p.Items[i].Action = plan.Unchanged
	}
	ctx, unlock, err := none.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, none.Begin(ctx, p, f.record(none, f.pki(none))))
	require.NoError(t, none.Finish(ctx, p, f.record(none, f.pki(none)), plan.Applied{}))
	unlock()
	p, err = none.Plan(t.Context(), f.objects(none), run.PlanOptions{})
	require.NoError(t, err)
	for _, o := range gadgets {
		require.Contains(t, changes(p), "delete "+o)
	}
	require.False(t, p.Stale)

	all, err := next.Objects(t.Context())
	require.NoError(t, err)
	require.NoError(t, next.Delete(t.Context(), slices.DeleteFunc(all, func(it plan.Item) bool { return it.Component != "agent/gadgets" })))
	require.Empty(t, mine("gadgets"))
	definition, err := r.clusters.home.Get(t.Context(), kind.CustomResourceDefinition, kind.PublishedResource.Definition)
	require.NoError(t, err)
	require.NotNil(t, definition, "it serves other setups too")
}

// The namespace of a place that the setup has left was deleted, and with it the inventory that has the kinds.
func TestClusterScopedObjectsOfAPlaceWhoseNamespaceIsGone(t *testing.T) {
	f := newRecorded(t, twoAgents)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	us := r.clusters.current[1]
	of := func(cl *cluster.Client) (out []string) {
		for _, k := range []kind.Kind{kind.ClusterRole, kind.ClusterRoleBinding, kind.PublishedResource} {
			all, err := cl.List(t.Context(), k, topology.LabelApplySet+"="+r.topology.ApplySet(cl.Cluster))
			require.NoError(t, err)
			for _, o := range all {
				out = append(out, k.Kind+"/"+o.GetName())
			}
		}
		return out
	}
	widgets, gadgets := of(r.clusters.home), of(us)
	require.GreaterOrEqual(t, len(gadgets), 3)
	endNamespace(t, us)
	finalizeNamespace(t, us)

	s := *without(f.topology).Setup
	s.Spec.Agents = slices.Clone(s.Spec.Agents)[:1]
	p := f.up(f.runtime(topology.Build(&s)), run.PlanOptions{})
	for _, o := range gadgets {
		require.Contains(t, changes(p), "delete "+o)
	}
	require.Empty(t, of(us))
	require.Equal(t, widgets, of(r.clusters.home))
	require.Len(t, f.places(r), 1)
	require.True(t, f.up(f.runtime(topology.Build(&s)), run.PlanOptions{}).Empty())
}

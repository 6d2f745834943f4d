package kube

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// endNamespace deletes the namespace of a client.
func endNamespace(t *testing.T, cl *cluster.Client) {
	t.Helper()
	background := metav1.DeletePropagationBackground
	require.NoError(t, cl.Dynamic.Resource(kind.Namespace.GVR()).Delete(t.Context(), cl.Namespace, metav1.DeleteOptions{PropagationPolicy: &background}))
}

// finalizeNamespace does what the controller of namespaces does: it deletes what is in the namespace, which is being
// deleted, and lets it go.
func finalizeNamespace(t *testing.T, cl *cluster.Client) {
	t.Helper()
	for _, k := range append(slices.Clone(kind.Applied), kind.Lease) {
		if k.ClusterScoped || k.Negotiated() {
			continue
		}
		all, err := cl.List(t.Context(), k, "")
		require.NoError(t, err)
		for i := range all {
			require.NoError(t, cl.Resource(k.GVR()).Delete(t.Context(), all[i].GetName(), metav1.DeleteOptions{}))
		}
	}
	client := cl.Dynamic.Resource(kind.Namespace.GVR())
	ns, err := client.Get(t.Context(), cl.Namespace, metav1.GetOptions{})
	require.NoError(t, err)
	unstructured.RemoveNestedField(ns.Object, "spec", "finalizers")
	_, err = client.Update(t.Context(), ns, metav1.UpdateOptions{}, "finalize")
	require.NoError(t, err)
}

// left is a runtime of the setup without its second cluster, for a user of all clusters.
func (f *fixture) left(user string, forget ...string) *Runtime {
	f.t.Helper()
	r := f.runtime(without(f.parse(f.named(twoPlaces), user)))
	kubeconfig, err := server.Kubeconfig(user)
	require.NoError(f.t, err)
	connect := r.clusters.previous.newClient
	r.clusters.previous.newClient = func(c topology.Cluster) (*cluster.Client, error) {
		c.Kubeconfig, c.Context = kubeconfig, ""
		return connect(c)
	}
	r.clusters.previous.forget = forget
	return r
}

// places are the clusters that the home cluster knows.
func (f *fixture) places(r *Runtime) []inventory.Placement {
	f.t.Helper()
	home, err := r.installation.inventories.Read(f.t.Context(), r.clusters.home)
	require.NoError(f.t, err)
	return home.Clusters
}

// said reports whether a message with a text was shown.
func said(r *Runtime, text string) bool {
	return slices.ContainsFunc(r.clusters.previous.notified, func(m string) bool { return strings.Contains(m, text) })
}

// The namespace of a place that the setup has left holds a run up neither while it is being deleted nor afterwards.
func TestAFormerClusterWhoseNamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	f, r := inTwoPlaces(t)
	us := r.clusters.current[1]
	endNamespace(t, us)
	ending := f.left(apiserver.Admin)
	require.Zero(t, f.up(ending, run.PlanOptions{}).Count(plan.Delete))
	require.True(t, said(ending, "Namespace/"+us.Namespace+" ("+us.Where()+") is being deleted"), ending.clusters.previous.notified)
	require.Len(t, f.places(r), 2, "what is in it goes with it, and a run sees that")
	err := f.left(apiserver.Admin).PreflightPurge(t.Context())
	requireRefused(t, err, "the purge was not started: Namespace/"+us.Namespace, "add --forget-cluster us")
	_, err = f.planWith(f.left(apiserver.Admin, "us"), run.PlanOptions{})
	require.NoError(t, err, "it may be stuck")

	finalizeNamespace(t, us)
	f.up(f.left(apiserver.Admin), run.PlanOptions{})
	require.Len(t, f.places(r), 1)
	require.True(t, f.up(f.left(apiserver.Admin), run.PlanOptions{}).Empty())
}

// seesClusters lets a user see which clusters the places are on.
func (f *fixture) seesClusters(r *Runtime, user string) {
	f.t.Helper()
	f.cluster(f.t, r, "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", user+"-namespaces", map[string]any{"rules": []any{
		map[string]any{"apiGroups": []any{""}, "resources": []any{"namespaces"}, "verbs": []any{"get"}},
	}})
	f.grant(r, "ClusterRoleBinding", user, user+"-namespaces")
}

// Users whose permissions do not include a place that the setup has left continue without it. They may not forget it:
// whether it is lost is not known.
func TestAFormerClusterThatTheUserMayNotSee(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cluster, place bool
		why            string
	}{
		"neither its UID nor its objects": {why: "the user may not read namespace kube-system, which identifies the cluster"},
		"not its UID":                     {place: true, why: "the user may not read namespace kube-system, which identifies the cluster"},
		"not its objects":                 {cluster: true, why: "read Secret kcp-of-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, r := inTwoPlaces(t)
			f.t = t
			user := server.Unique("member")
			f.tenant(r.clusters.home, user)
			if tc.cluster {
				f.seesClusters(r, user)
			}
			if tc.place {
				f.tenant(r.clusters.current[1], user)
			}
			left := f.left(user)
			require.EventuallyWithT(t, func(c *assert.CollectT) { // permissions take a moment
				left.clusters.previous.reset()
				assert.NoError(c, left.clusters.home.Check(t.Context()))
				assert.NoError(c, left.clusters.previous.find(t.Context()))
				assert.True(c, said(left, tc.why), left.clusters.previous.notified)
			}, time.Minute, 50*time.Millisecond)
			require.Zero(t, f.upSoon(left).Count(plan.Delete))
			require.Len(t, f.places(r), 2)
			_, err := f.planWith(f.left(user, "us"), run.PlanOptions{})
			requireRefused(t, err, "whether cluster us is lost is not known: "+tc.why, "ask an administrator of the cluster for this permission")
			f.up(f.left(apiserver.Admin), run.PlanOptions{})
			require.Len(t, f.places(r), 1, "an administrator removes the existing objects")
		})
	}
}

// A place is left although the user may not delete the namespace that the setup has created there.
func TestTheNamespaceOfAFormerClusterMayRemain(t *testing.T) {
	t.Parallel()
	f := newRecorded(t, twoPlaces)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	user := server.Unique("member")
	for _, cl := range r.clusters.current {
		f.tenant(cl, user)
	}
	f.seesClusters(r, user)
	left := f.left(user)
	require.NotZero(t, f.upSoon(left).Count(plan.Delete))
	require.Len(t, f.places(r), 1)
	us := r.clusters.current[1]
	ns, err := us.ReadNamespace(t.Context())
	require.NoError(t, err)
	require.NotNil(t, ns)
	there, err := r.installation.inventories.Read(t.Context(), us)
	require.NoError(t, err)
	require.False(t, there.Exists())
	require.True(t, f.up(f.left(user), run.PlanOptions{}).Empty())
}

// down --purge continues after it was interrupted, although a place is gone already with its namespace.
func TestAPurgeContinuesWithoutANamespace(t *testing.T) {
	t.Parallel()
	f, r := inTwoPlaces(t)
	endNamespace(t, r.clusters.current[1])
	finalizeNamespace(t, r.clusters.current[1])
	again := f.runtime(f.topology)
	require.NoError(t, (&deploy.Down{Runtime: again, Purge: true, Observe: func(run.Event) {}, Now: time.Now}).Run(t.Context()))
	require.Nil(t, f.live(r, kind.Secret, r.topology.Object(topology.InventoryPart)))
}

// down, and a run that is limited to other places, need no namespace on a cluster where nothing was applied yet.
func TestAClusterWhereNothingWasAppliedYet(t *testing.T) {
	t.Parallel()
	f := newRecorded(t, twoPlaces)
	one := f.left(apiserver.Admin)
	f.createNamespace(one)
	f.up(one, run.PlanOptions{})

	r := f.runtime(f.topology)
	p, err := f.planWith(r, run.PlanOptions{})
	require.NoError(t, err)
	require.NotZero(t, p.Count(plan.Create))
	limited := *p
	limited.Items = slices.DeleteFunc(slices.Clone(p.Items), func(it plan.Item) bool { return it.Cluster != "eu" })
	rec := f.record(r, f.pki(r))
	require.NoError(t, r.Begin(t.Context(), &limited, rec))
	require.NoError(t, r.Finish(t.Context(), &limited, rec, plan.Applied{}))
	require.ErrorContains(t, r.Begin(t.Context(), p, rec), "not found", "a plan that wants something there")

	require.NoError(t, (&deploy.Down{Runtime: f.runtime(f.topology), Observe: func(run.Event) {}, Now: time.Now}).Run(t.Context()))
	items, err := f.runtime(f.topology).Objects(t.Context())
	require.NoError(t, err)
	require.Empty(t, items)
}

// If the Secrets are lost, what is left says which installation was here, unless it is given up. A purge leaves nothing.
func TestALostInstallationIsKnown(t *testing.T) {
	t.Parallel()
	f := newRecorded(t, sharded)
	r := f.runtime(f.topology)
	f.createNamespace(r) // nothing ends one here
	f.up(r, run.PlanOptions{})
	require.NoError(t, (&deploy.Down{Runtime: r, Observe: func(run.Event) {}, Now: time.Now}).Run(t.Context()))
	known, err := r.Record(t.Context())
	require.NoError(t, err)
	require.Empty(t, known.Lost)
	for _, part := range []string{pkiPart, topology.InventoryPart} {
		name := r.topology.Object(part)
		require.NoError(t, r.clusters.home.Resource(kind.Secret.GVR()).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	lost := func(id string) string {
		t.Helper()
		options := f.options()
		options.AllowLostRecord = id
		r, err := New(f.topology, options)
		require.NoError(t, err)
		defer r.Close()
		rec, err := r.Record(t.Context())
		require.NoError(t, err)
		require.True(t, rec.Empty())
		return rec.Lost
	}
	require.Equal(t, known.Installation, lost(""))
	require.Equal(t, known.Installation, lost("demo-other"))
	require.Empty(t, lost(known.Installation))

	r = f.runtime(f.topology)
	require.NoError(t, (&deploy.Down{Runtime: r, Purge: true, Observe: func(run.Event) {}, Now: time.Now}).Run(t.Context()))
	require.Empty(t, lost(""))
}

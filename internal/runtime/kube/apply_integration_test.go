package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

func TestASecondUpWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	first := f.up(r, run.PlanOptions{})
	require.Equal(t, len(first.Items), first.Count(plan.Create))
	before := f.versions(r)

	again := f.runtime(f.topology)
	start := time.Now()
	p, err := again.Plan(t.Context(), f.objects(again), run.PlanOptions{})
	t.Log("no-op plan of", len(p.Items), "objects took", time.Since(start))
	require.NoError(t, err)
	require.Empty(t, changes(p))
	require.True(t, p.Empty())
	require.NoError(t, again.Begin(t.Context(), p, &record.Record{}))
	require.NoError(t, again.Finish(t.Context(), p, &record.Record{}, plan.Applied{Setup: []byte("setup of " + f.namespace)}))
	require.Equal(t, before, f.versions(again))
}

func TestPlanOfAnEmptyClusterCreatesAll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	p, err := r.Plan(t.Context(), f.objects(r), run.PlanOptions{})
	require.NoError(t, err)
	require.Equal(t, len(p.Items), p.Count(plan.Create))
	require.Nil(t, f.live(r, kind.Namespace, f.namespace))
}

func TestDriftIsRepaired(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	service := f.live(r, kind.Service, "demo-root")
	service.SetLabels(nil)
	_, err := r.clusters.home.Resource(kind.Service.GVR()).Update(t.Context(), service, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
	require.NoError(t, err)
	err = r.clusters.home.Resource(kind.ConfigMap.GVR()).Delete(t.Context(), f.firstConfigMap(r), metav1.DeleteOptions{})
	require.NoError(t, err)

	p := f.up(r, run.PlanOptions{})
	require.Equal(t, []string{"create ConfigMap/" + f.firstConfigMap(r), "change Service/demo-root"}, changes(p))
	require.True(t, f.up(r, run.PlanOptions{}).Empty())
}

// firstConfigMap is the name of some ConfigMap of the setup.
func (f *fixture) firstConfigMap(r *Runtime) string {
	for _, o := range f.objects(r) {
		if o.GetKind() == "ConfigMap" {
			return o.GetName()
		}
	}
	return ""
}

func TestConflictsAreCollectedAndForced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	for _, name := range []string{"demo-root", "demo-shard-alpha"} {
		f.as("kubectl-edit", r, kind.Deployment, name, map[string]any{"spec": map[string]any{"replicas": int64(7)}})
	}
	objects := f.objects(r)
	p, err := r.Plan(t.Context(), objects, run.PlanOptions{})
	require.NoError(t, err)
	var got []string
	for _, c := range p.Conflicts {
		got = append(got, c.Object+" "+c.Field+" "+c.Manager)
	}
	require.ElementsMatch(t, []string{
		"Deployment/" + f.namespace + "/demo-root spec.replicas kubectl-edit",
		"Deployment/" + f.namespace + "/demo-shard-alpha spec.replicas kubectl-edit",
	}, got)
	require.Equal(t, 2, p.Count(plan.Change), "the plan shows what a forced apply would change")

	err = r.Apply(t.Context(), only(p.Items, "", plan.Change), run.PlanOptions{})
	require.Equal(t, clierr.Conflict, clierr.Code(err))
	require.ErrorContains(t, err, `spec.replicas is owned by "kubectl-edit"`)

	f.up(r, run.PlanOptions{Force: true})
	require.True(t, f.up(r, run.PlanOptions{}).Empty())
}

func TestObjectsOfAnotherSetupAreConflicts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	f.as(object.FieldManager, r, kind.ConfigMap, "mine", map[string]any{"data": map[string]any{"a": "b"}, "metadata": map[string]any{
		"labels": map[string]any{topology.LabelSetup: "other", topology.LabelApplySet: "applyset-x-v1"}}})
	objects := f.objects(r)
	foreign := objects[len(objects)-1]
	foreign.Unstructured = f.live(r, kind.ConfigMap, "mine").DeepCopy()
	foreign.SetLabels(map[string]string{topology.LabelApplySet: r.topology.ApplySet(r.clusters.home.Cluster)})
	foreign.SetManagedFields(nil)
	foreign.SetResourceVersion("")
	foreign.SetUID("")
	for _, force := range []bool{false, true} {
		p, err := r.Plan(t.Context(), append(objects, foreign), run.PlanOptions{Force: force})
		require.NoError(t, err)
		require.Len(t, p.Conflicts, 1, "an object of another setup is not taken over, not even with force")
		require.Equal(t, "kcpctl, setup other", p.Conflicts[0].Manager)
	}
}

func TestWhatIsNotWantedAnyMoreIsDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	require.NotNil(t, f.live(r, kind.Deployment, "demo-shard-beta"))

	f.topology.Setup.Spec.Shards = f.topology.Setup.Spec.Shards[:1]
	smaller := f.runtime(topology.Build(f.topology.Setup))
	p := f.up(smaller, run.PlanOptions{})
	require.Contains(t, changes(p), "delete Deployment/demo-shard-beta")
	require.Contains(t, changes(p), "delete StatefulSet/demo-etcd-beta")
	require.Nil(t, f.live(r, kind.Deployment, "demo-shard-beta"))
	require.True(t, f.up(smaller, run.PlanOptions{}).Empty())
}

func TestAnInterruptedRunIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	ctx := t.Context()
	state := f.pki(r)
	objects, err := render.Objects(r.topology, state)
	require.NoError(t, err)
	p, err := r.Plan(ctx, objects, run.PlanOptions{})
	require.NoError(t, err)
	require.NoError(t, r.Apply(ctx, only(p.Items, "Namespace", plan.Create), run.PlanOptions{}))
	require.NoError(t, r.Store().Save(ctx, state))
	require.NoError(t, r.Begin(ctx, p, &record.Record{}))
	inv, err := r.installation.inventories.Read(ctx, r.clusters.home)
	require.NoError(t, err)
	require.NotEmpty(t, inv.Applying)
	require.Contains(t, inv.Kinds, "Deployment.apps", "the superset is remembered before anything is written")
	require.NoError(t, r.Apply(ctx, only(p.Items, "Secret", plan.Create), run.PlanOptions{}))

	next := f.runtime(f.topology)
	f.up(next, run.PlanOptions{})
	inv, err = next.installation.inventories.Read(ctx, next.clusters.home)
	require.NoError(t, err)
	require.Empty(t, inv.Applying)
	require.Len(t, inv.History, 1)

	// A run that ends between its last object and Finish leaves nothing but the inventory to do.
	inv.Applying = "since then"
	require.NoError(t, next.installation.inventories.Update(ctx, next.clusters.home, func(i *inventory.Inventory) { i.Applying = inv.Applying }))
	p, err = next.Plan(ctx, f.objects(next), run.PlanOptions{})
	require.NoError(t, err)
	require.Empty(t, changes(p))
	require.True(t, p.Stale)
	require.False(t, p.Empty())
}

func TestInvalidObjectsAreFoundByThePlan(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	objects := f.objects(r)
	for _, o := range objects {
		switch o.GetKind() + "/" + o.GetName() {
		case "StatefulSet/demo-etcd-root":
			require.NoError(t, unstructured.SetNestedField(o.Object, "elsewhere", "spec", "serviceName"))
		case "Service/demo-root":
			require.NoError(t, unstructured.SetNestedField(o.Object, "Nonsense", "spec", "type"))
		}
	}
	_, err := r.Plan(t.Context(), objects, run.PlanOptions{})
	require.ErrorContains(t, err, "StatefulSet/"+f.namespace+"/demo-etcd-root has changes that Kubernetes does not allow")
	require.ErrorContains(t, err, "Service/"+f.namespace+"/demo-root is invalid")
	require.Contains(t, hints(err), "--cascade=orphan")
}

func TestNamespacesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.createNamespace(r)
	f.up(r, run.PlanOptions{})
	require.NotContains(t, f.live(r, kind.Namespace, f.namespace).GetLabels(), topology.LabelSetup)

	other := newFixture(t, sharded)
	r = other.runtime(other.topology)
	other.up(r, run.PlanOptions{})
	made := other.live(r, kind.Namespace, other.namespace)
	require.Equal(t, "demo", made.GetLabels()[topology.LabelSetup])
	require.Equal(t, "demo", made.GetAnnotations()[annotationCreatedBy])
	require.True(t, other.up(r, run.PlanOptions{}).Empty(), "the mark survives the next apply")
}

func TestDownDeletesAllButData(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	applied := f.up(r, run.PlanOptions{})
	items, err := r.Objects(t.Context())
	require.NoError(t, err)
	require.Len(t, items, len(applied.Items)-1, "all but the namespace")
	require.Equal(t, topology.Base, items[0].Component.Kind())
	require.Equal(t, topology.Kubeconfig, items[len(items)-1].Component.Kind())
	require.NoError(t, r.Delete(t.Context(), items))
	left, err := r.Objects(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
	require.NotNil(t, f.live(r, kind.Secret, "demo-pki"))
	require.NotNil(t, f.live(r, kind.Secret, "demo-inventory"))
}

// An object that is being deleted looks unchanged, and disappears later.
func TestAnObjectThatIsBeingDeletedIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	client := r.clusters.home.Resource(kind.Service.GVR())
	finalizers := func(all ...any) {
		patch := map[string]any{"metadata": map[string]any{"finalizers": all}}
		_, err := mergepatch.Send(t.Context(), client, "cloud", "demo-root", "", patch)
		require.NoError(t, err)
	}
	finalizers("service.kubernetes.io/load-balancer-cleanup")
	require.NoError(t, client.Delete(t.Context(), "demo-root", metav1.DeleteOptions{}))
	_, err := f.plan(f.topology, run.PlanOptions{})
	requireRefused(t, err, "Service/"+f.namespace+"/demo-root (context admin, namespace "+f.namespace+
		") is being deleted; its finalizers are service.kubernetes.io/load-balancer-cleanup",
		"-n "+f.namespace+" wait --for=delete service/demo-root")
	var s corev1.Service
	exists, err := read(t.Context(), r.clusters.home, kind.Service, "demo-root", &s)
	require.NoError(t, err)
	require.False(t, exists, "its addresses go with it")
	finalizers()
	require.Equal(t, []string{"create Service/demo-root"}, changes(f.up(f.runtime(f.topology), run.PlanOptions{})))
}

func TestHistoryGrowsWithEachSetup(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	p := f.up(r, run.PlanOptions{})
	require.NoError(t, r.Finish(t.Context(), p, &record.Record{}, plan.Applied{Setup: []byte("another")}))
	require.NoError(t, r.Finish(t.Context(), p, &record.Record{}, plan.Applied{Setup: []byte("another")}))
	h, err := r.History(t.Context())
	require.NoError(t, err)
	require.Len(t, h, 2)
	require.Equal(t, "another", string(h[1].Setup))
	require.Equal(t, 2, h[1].Number)
	require.Contains(t, h[1].User, "tester")
}

func TestObjectsGoToTheClusterOfTheirComponent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, twoPlaces)
	r := f.runtime(f.topology)
	f.createNamespace(r)
	us := *f
	us.namespace += "-us"
	us.createNamespace(r)
	f.up(r, run.PlanOptions{})
	require.True(t, f.up(f.runtime(f.topology), run.PlanOptions{}).Empty())
	on := func(ref plan.Ref, name string) *unstructured.Unstructured {
		s, err := r.clusters.of(t.Context(), ref)
		require.NoError(t, err)
		o, err := s.Get(t.Context(), kind.Deployment, name)
		require.NoError(t, err)
		return o
	}
	require.NotNil(t, on(plan.Ref{Cluster: "us"}, "demo-shard-beta"))
	require.Nil(t, on(plan.Ref{Cluster: "eu"}, "demo-shard-beta"))

	// The setup leaves the second cluster: what it has there is found by what the first remembers.
	f.topology.Setup.Spec.Shards, f.topology.Setup.Spec.Clusters = nil, f.topology.Setup.Spec.Clusters[:1]
	left := f.runtime(topology.Build(f.topology.Setup))
	p := f.up(left, run.PlanOptions{})
	require.Contains(t, changes(p), "delete Deployment/demo-shard-beta")
	require.Nil(t, on(plan.Ref{Cluster: "us"}, "demo-shard-beta"))
	require.Nil(t, us.live(at(r.clusters.current[1]), kind.Secret, "demo-inventory"))
	again := f.runtime(topology.Build(f.topology.Setup))
	require.True(t, f.up(again, run.PlanOptions{}).Empty())
	require.Empty(t, again.clusters.previous.found)
}

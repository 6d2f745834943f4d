package kube

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// An API server reports a conflict for an atomic object of another manager that it has completed itself. A run ignores it
// if no value differs, and a forced run takes the object over.
func TestFieldsWithoutADifferenceAreNoConflict(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	const container = "kcp"
	env := func(ref map[string]any) map[string]any {
		return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": container, "env": []any{map[string]any{
				"name": "NODE", "valueFrom": map[string]any{"fieldRef": ref},
			}}}},
		}}}}
	}
	f.as("argocd-controller", r, kind.Deployment, "demo-root", env(map[string]any{"fieldPath": "spec.nodeName"}))
	objects := f.objects(r)
	for i := range objects {
		if o := objects[i]; o.GetKind() == "Deployment" && o.GetName() == "demo-root" {
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			require.NoError(t, err)
			first := containers[0].(map[string]any)
			first["env"] = []any{map[string]any{"name": "NODE",
				"valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "spec.nodeName"}}}}
			require.NoError(t, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
		}
	}
	p, err := r.Plan(t.Context(), objects, run.PlanOptions{})
	require.NoError(t, err)
	require.Empty(t, p.Conflicts)
	require.Empty(t, changes(p))

	p, err = r.Plan(t.Context(), objects, run.PlanOptions{Force: true})
	require.NoError(t, err)
	require.Equal(t, []string{"change Deployment/demo-root"}, changes(p))
	require.Len(t, p.Notes(), 1)
	require.Contains(t, p.Notes()[0], "fieldRef, and no value changes")
	items := only(p.Items, "", plan.Change)
	require.NoError(t, r.Apply(t.Context(), items, run.PlanOptions{Force: true}))
	_, err = r.clusters.home.Apply(t.Context(), items[0].Want, cluster.ApplyOptions{DryRun: true})
	require.NoError(t, err, "kcpctl is its manager")
}

// scaled leaves the replicas of its front-proxy to others, or not.
const scaled = `spec:
  clusters: [{name: eu, kubeconfig: %%q, namespace: %%s}]
  frontProxies: [{name: main, replicas: %s, logLevel: %d}]
`

// The number of replicas remains when the setup file leaves it to others: the number that kcpctl has set, and the one
// that an autoscaler has set.
func TestReplicasAreLeftToOthers(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	const name = "demo-front-proxy-main"
	level := 0
	with := func(replicas string) *Runtime {
		level++ // so that something changes
		r := f.runtime(f.parse(fmt.Sprintf(scaled, replicas, level), apiserver.Admin))
		f.topology = r.topology
		return r
	}
	replicas := func(r *Runtime) int64 {
		n, _, err := unstructured.NestedInt64(f.live(r, kind.Deployment, name).Object, "spec", "replicas")
		require.NoError(t, err)
		return n
	}
	r := with("3")
	f.up(r, run.PlanOptions{})
	require.EqualValues(t, 3, replicas(r))

	r = with("null")
	require.Equal(t, []string{"change Deployment/" + name}, changes(f.up(r, run.PlanOptions{})))
	require.EqualValues(t, 3, replicas(r))
	r = with("2")
	f.up(r, run.PlanOptions{}) // no one else has set them
	require.EqualValues(t, 2, replicas(r))

	r = with("null")
	f.up(r, run.PlanOptions{})
	_, err := r.clusters.home.Resource(kind.Deployment.GVR()).Patch(t.Context(), name, "application/merge-patch+json",
		[]byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{FieldManager: "autoscaler"})
	require.NoError(t, err)
	require.True(t, f.up(r, run.PlanOptions{}).Empty())
	f.up(with("null"), run.PlanOptions{})
	require.EqualValues(t, 5, replicas(r))

	r = with("2")
	p, err := r.Plan(t.Context(), f.objects(r), run.PlanOptions{})
	require.NoError(t, err)
	require.Len(t, p.Conflicts, 1)
	require.Equal(t, "autoscaler", p.Conflicts[0].Manager)
}

func TestReplicasOfANewComponentHaveTheDefaultOfKubernetes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, `spec:
  clusters: [{name: eu, kubeconfig: %q, namespace: %s}]
  defaults: {replicas: null}
`)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	for _, name := range []string{"demo-root", "demo-front-proxy-main"} {
		n, _, err := unstructured.NestedInt64(f.live(r, kind.Deployment, name).Object, "spec", "replicas")
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
	require.True(t, f.up(r, run.PlanOptions{}).Empty())
}

// labelled has common metadata.
const labelled = `spec:
  clusters: [{name: eu, kubeconfig: %%q, namespace: %%s}]
  commonMetadata: {%s}
`

// The objects that a run creates before all others have the common metadata, too: a policy may require it of every
// object. It can change.
func TestCommonMetadataOfObjectsOutsideOfThePlan(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	with := func(metadata string) *Runtime {
		r := f.runtime(f.parse(fmt.Sprintf(labelled, metadata), apiserver.Admin))
		f.topology = r.topology
		return r
	}
	r := with("labels: {team: a}, annotations: {example.com/owner: me}")
	f.up(r, run.PlanOptions{})
	for _, o := range []*unstructured.Unstructured{
		f.live(r, kind.Namespace, f.namespace), f.live(r, kind.Secret, "demo-inventory"), f.live(r, kind.Secret, "demo-pki"),
	} {
		require.Equal(t, "a", o.GetLabels()["team"], o.GetName())
		require.Equal(t, "me", o.GetAnnotations()["example.com/owner"], o.GetName())
	}
	require.True(t, f.up(r, run.PlanOptions{}).Empty())

	r = with("labels: {team: b}")
	p := f.up(r, run.PlanOptions{})
	require.NoError(t, r.Apply(t.Context(), only(p.Items, "Namespace", plan.Change), run.PlanOptions{}))
	require.Equal(t, "b", f.live(r, kind.Namespace, f.namespace).GetLabels()["team"])
	service := f.live(r, kind.Service, "demo-root")
	require.Equal(t, "b", service.GetLabels()["team"])
	require.Empty(t, service.GetAnnotations())
}

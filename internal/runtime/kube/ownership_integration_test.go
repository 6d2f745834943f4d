package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
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
	_, err = r.clusters.home.Apply(t.Context(), items[0].Want, object.ApplyOptions{DryRun: true})
	require.NoError(t, err, "kcpctl is its manager")
}

// scalable leaves the replicas of its front-proxy to others, or not.
const scalable = `spec:
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
		r := f.runtime(f.parse(fmt.Sprintf(scalable, replicas, level), apiserver.Admin))
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

// A restart changes no replicas that are left to others: neither the number that someone has set, nor the one that a
// component had before.
func TestARestartLeavesReplicasToOthers(t *testing.T) {
	t.Parallel()
	for name, scaled := range map[string]bool{"scaled by an autoscaler": true, "set by kcpctl before": false} {
		t.Run(name, func(t *testing.T) {
			f := inNamespace(t)
			r := f.runtime(f.parse(fmt.Sprintf(scalable, "3", 1), apiserver.Admin))
			f.up(r, run.PlanOptions{})
			r = f.runtime(f.parse(fmt.Sprintf(scalable, "null", 1), apiserver.Admin))
			f.up(r, run.PlanOptions{})
			if scaled {
				_, err := r.clusters.home.Resource(kind.Deployment.GVR()).Patch(t.Context(), "demo-front-proxy-main",
					"application/merge-patch+json", []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{FieldManager: "autoscaler"}, "scale")
				require.NoError(t, err)
			}
			before := f.live(r, kind.Deployment, "demo-front-proxy-main")
			objects := f.objects(r)
			for i, o := range objects {
				if o.GetKind() == before.GetKind() && o.GetName() == before.GetName() {
					objects[i].Unstructured = plan.Restart(o.Unstructured, time.Now())
				}
			}
			p, err := r.Plan(t.Context(), objects, run.PlanOptions{})
			require.NoError(t, err)
			require.Empty(t, p.Conflicts)
			require.Equal(t, []string{"change Deployment/demo-front-proxy-main"}, changes(p))
			require.NoError(t, r.Apply(t.Context(), only(p.Items, "", plan.Change), run.PlanOptions{}))
			after := f.live(r, kind.Deployment, "demo-front-proxy-main")
			require.Equal(t, before.Object["spec"].(map[string]any)["replicas"], after.Object["spec"].(map[string]any)["replicas"])
			require.NotEqual(t, before.GetGeneration(), after.GetGeneration())
		})
	}
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
	for _, o := range []*unstructured.Unstructured{f.live(r, kind.Namespace, f.namespace), f.live(r, kind.Secret, "demo-inventory")} {
		require.Equal(t, "b", o.GetLabels()["team"], o.GetName())
	}
	service := f.live(r, kind.Service, "demo-root")
	require.Equal(t, "b", service.GetLabels()["team"])
	require.Empty(t, service.GetAnnotations())

	r = with("")
	p = f.up(r, run.PlanOptions{})
	require.NoError(t, r.Apply(t.Context(), only(p.Items, "Namespace", plan.Change), run.PlanOptions{}))
	ns := f.live(r, kind.Namespace, f.namespace)
	require.NotContains(t, ns.GetLabels(), "team")
	require.Equal(t, "demo", ns.GetAnnotations()[annotationCreatedBy])
	require.NotContains(t, f.live(r, kind.Service, "demo-root").GetLabels(), "team")
	require.True(t, f.up(r, run.PlanOptions{}).Empty())
}

// labelPolicy requires a label of every object in a namespace, and of the namespace.
const labelPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s-team}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*"]}]
  matchConditions: [{name: here, expression: "request.?namespace.orValue('') == '%[1]s'"}]
  validations: [{expression: "object.metadata.?labels.team.hasValue()", message: the label team is required}]
`

// requireLabel makes a cluster require the label team in the namespace of the fixture.
func (f *fixture) requireLabel(r *Runtime) {
	f.t.Helper()
	require.NoError(f.t, r.clusters.home.Connect(f.t.Context()))
	policy := &unstructured.Unstructured{}
	require.NoError(f.t, yaml.Unmarshal(fmt.Appendf(nil, labelPolicy, f.namespace), &policy.Object))
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": policy.GetAPIVersion(), "kind": policy.GetKind() + "Binding",
		"metadata": map[string]any{"name": policy.GetName()},
		"spec":     map[string]any{"policyName": policy.GetName(), "validationActions": []any{"Deny"}},
	}}
	for _, o := range []*unstructured.Unstructured{policy, binding} {
		k, err := kind.Of(o.GroupVersionKind())
		require.NoError(f.t, err)
		resource := r.clusters.home.Dynamic.Resource(k.GVR())
		apiserver.Remove(f.t, resource, o.GetName())
		_, err = resource.Create(f.t.Context(), o, metav1.CreateOptions{})
		require.NoError(f.t, err)
	}
	ns := &unstructured.Unstructured{}
	ns.SetGroupVersionKind(kind.Namespace.GroupVersionKind)
	ns.SetName(f.namespace)
	require.Eventually(f.t, func() bool {
		_, err := r.clusters.home.For(kind.Namespace).Apply(f.t.Context(), f.namespace, ns,
			metav1.ApplyOptions{FieldManager: "test", DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "the label team is required")
	}, time.Minute, 100*time.Millisecond)
}

// A policy requires a label of all objects. A setup with the label is applied, whether it is new or was applied before
// the policy came; without it, the refusal has the text of the policy.
func TestAPolicyThatRequiresALabel(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"a new setup": false, "one that was applied before": true} {
		t.Run(name, func(t *testing.T) {
			f := newRecorded(t, sharded)
			r := f.runtime(f.topology)
			if before {
				f.up(r, run.PlanOptions{})
			}
			f.requireLabel(r)
			p, err := r.Plan(t.Context(), f.objects(r), run.PlanOptions{})
			if !before {
				require.NoError(t, err)
				err = r.Apply(t.Context(), only(p.Items, "Namespace", plan.Create), run.PlanOptions{})
			}
			require.ErrorContains(t, err, "the label team is required")

			r = f.runtime(f.parse(f.named(sharded+"  commonMetadata: {labels: {team: a}}\n"), apiserver.Admin))
			p, err = r.Plan(t.Context(), f.objects(r), run.PlanOptions{})
			require.NoError(t, err)
			require.NoError(t, r.Apply(t.Context(), only(p.Items, "Namespace", plan.Change), run.PlanOptions{}))
			f.up(r, run.PlanOptions{})
			require.True(t, f.up(r, run.PlanOptions{}).Empty())
			for _, k := range append([]kind.Kind{kind.Lease}, kind.Applied...) {
				if k.ClusterScoped {
					continue
				}
				all, err := r.clusters.home.List(t.Context(), k, "")
				require.NoError(t, err)
				for _, o := range all {
					if before && (o.GetName() == f.topology.Object(witnessPart) || o.GetName() == f.topology.Object(pkiPart)) {
						continue // nothing has changed in it, so it was not written
					}
					require.Equal(t, "a", o.GetLabels()["team"], "%s %s", k.Kind, o.GetName())
				}
			}
		})
	}
}

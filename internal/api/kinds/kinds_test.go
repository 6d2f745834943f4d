package kinds_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &u.Object))
	return u
}

// Nothing that is published by default is handled by a guess.
func TestEveryDefaultAPIHasARow(t *testing.T) {
	for _, name := range api.DefaultAPIs() {
		k, ok := kinds.OfResource(schema.ParseGroupResource(name))
		require.True(t, ok, "no row for %s", name)
		require.False(t, kinds.ClusterScoped(k.GroupResource()), name)
	}
	for _, r := range api.Dependencies() {
		k, ok := kinds.OfResource(r.GroupResource())
		require.True(t, ok && k.NoStatus, "no row for %s", r)
	}
}

func TestTheTableIsConsistent(t *testing.T) {
	seen := map[schema.GroupResource]bool{}
	for _, k := range kinds.All() {
		require.False(t, seen[k.GroupResource()], k.Resource)
		seen[k.GroupResource()] = true
		require.Contains(t, []kinds.Spread{kinds.Divide, kinds.Duplicate, kinds.Single, kinds.Follow}, k.Spread, k.Kind)
		require.True(t, strings.HasPrefix(strings.ToLower(k.Resource), strings.ToLower(k.Kind)[:3]), k.Kind)
		require.Equal(t, k.Selects == kinds.NoSelection, k.SelectorPath == nil, k.Kind)
		require.False(t, k.Guards && k.Selects == kinds.NoSelection, k.Kind)
		require.False(t, k.Spread == kinds.Divide && k.Template == nil, "%s has no pods to divide", k.Kind)
		require.False(t, k.NoStatus && k.Status != nil, k.Kind)
		again, ok := kinds.Of(k.GroupKind)
		require.True(t, ok && again.Resource == k.Resource)
	}
	require.NotEmpty(t, seen)
}

func TestKeepsData(t *testing.T) {
	for text, want := range map[string]bool{
		"{apiVersion: v1, kind: PersistentVolumeClaim}":                                       true,
		"{apiVersion: apps/v1, kind: StatefulSet, spec: {volumeClaimTemplates: [{}]}}":        true,
		"{apiVersion: apps/v1, kind: StatefulSet, spec: {volumeClaimTemplates: []}}":          false,
		"{apiVersion: apps/v1, kind: StatefulSet, spec: 1}":                                   false,
		"{apiVersion: apps/v1, kind: Deployment, spec: {volumeClaimTemplates: [{}]}}":         false,
		"{apiVersion: example.com/v1, kind: StatefulSet, spec: {volumeClaimTemplates: [{}]}}": false,
	} {
		require.Equal(t, want, kinds.KeepsData(object(t, text)), text)
	}
}

func TestPodSpec(t *testing.T) {
	spec := map[string]any{"a": "b"}
	for text, want := range map[string]map[string]any{
		"{apiVersion: v1, kind: Pod, spec: {a: b}}":                                                               spec,
		"{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {a: b}}}}":                               spec,
		"{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: {a: b}}}}}}":          spec,
		"{apiVersion: example.com/v1, kind: Widget, spec: {template: {spec: {a: b}}}}":                            nil,
		"{apiVersion: apps/v1, kind: Deployment, spec: []}":                                                       nil,
		"{apiVersion: v1, kind: ConfigMap, data: {a: b}}":                                                         nil,
		"{apiVersion: batch/v1, kind: Job, spec: {template: {spec: 1}}}":                                          nil,
		"{apiVersion: v1, kind: ReplicationController, spec: {template: {spec: {a: b}, metadata: {labels: {}}}}}": spec,
	} {
		require.Equal(t, want, kinds.PodSpec(object(t, text)), text)
	}
}

func TestPropagation(t *testing.T) {
	for name, want := range map[string]metav1.DeletionPropagation{
		"deployments.apps": metav1.DeletePropagationForeground, "replicationcontrollers": metav1.DeletePropagationForeground,
		"widgets.example.com": metav1.DeletePropagationForeground, "services": metav1.DeletePropagationBackground,
		"poddisruptionbudgets.policy": metav1.DeletePropagationBackground, "endpointslices.discovery.k8s.io": metav1.DeletePropagationBackground,
	} {
		require.Equal(t, want, kinds.Propagation(schema.ParseGroupResource(name)), name)
	}
}

func TestClusterScoped(t *testing.T) {
	for name, want := range map[string]bool{
		"namespaces": true, "nodes": true, "persistentvolumes": true, "clusterroles.rbac.authorization.k8s.io": true, "storageclasses.storage.k8s.io": true,
		"ingressclasses.networking.k8s.io": true, "priorityclasses.scheduling.k8s.io": true, "validatingwebhookconfigurations.admissionregistration.k8s.io": true,
		"roles.rbac.authorization.k8s.io": false, "ingresses.networking.k8s.io": false, "csistoragecapacities.storage.k8s.io": false, "nodes.example.com": false,
	} {
		require.Equal(t, want, kinds.ClusterScoped(schema.ParseGroupResource(name)), name)
	}
}

func TestEverywhere(t *testing.T) {
	require.True(t, kinds.IsEverywhere(schema.GroupResource{Resource: "configmaps"}, "kube-root-ca.crt"))
	require.False(t, kinds.IsEverywhere(schema.GroupResource{Resource: "secrets"}, "kube-root-ca.crt"))
	require.True(t, kinds.IsEverywhere(schema.GroupResource{Resource: "serviceaccounts"}, kinds.DefaultAccount))
}

func TestIsFirst(t *testing.T) {
	account := schema.GroupResource{Resource: "serviceaccounts"}
	require.True(t, kinds.IsFirst(account, "default"))
	require.False(t, kinds.IsFirst(account, "web"), "its pods wait for it by themselves")
	require.True(t, kinds.IsFirst(schema.ParseGroupResource("networkpolicies.networking.k8s.io"), "any"))
	require.False(t, kinds.IsFirst(schema.GroupResource{Resource: "configmaps"}, "default"))
}

func TestVisit(t *testing.T) {
	object := map[string]any{
		"a": map[string]any{"b": []any{map[string]any{"c": "1"}, "no object", map[string]any{"c": "2", "d": "3"}, map[string]any{}}},
		"e": "no list",
	}
	for path, want := range map[string][]any{
		"a.b[].c": {"1", "2", nil}, "e": {"no list"}, "a.b.c": nil, "e[].f": nil, "x.y": nil, "x": {nil},
	} {
		var got []any
		kinds.Visit(object, strings.Split(path, "."), func(at map[string]any, field string) { got = append(got, at[field]) })
		require.Equal(t, want, got, path)
	}
	kinds.Visit(object, []string{"a", "b[]", "c"}, func(at map[string]any, field string) { delete(at, field) })
	require.Equal(t, []any{map[string]any{}, "no object", map[string]any{"d": "3"}, map[string]any{}}, object["a"].(map[string]any)["b"])
}

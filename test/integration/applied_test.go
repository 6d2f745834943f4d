package integration

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// overlaid has in its overlays what kube-apiserver completes, or writes its own way.
const overlaid = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: overlaid}
spec:
  clusters: [{name: default}]
  etcd: {managed: {podTemplate: {spec: &pod {
    tolerations: [{key: kcp, operator: Exists}],
    initContainers: [{
      name: wait, image: busybox,
      env: [
        {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
        {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}},
        {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1024Ki}}}],
      resources: {limits: {cpu: 1000m, memory: 0.5Gi}, requests: {cpu: 0.5}},
      ports: [{containerPort: 8080}]}],
    volumes: [
      {name: scratch, emptyDir: {sizeLimit: 1024Mi}},
      {name: info, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}},
      {name: all, projected: {sources: [
        {serviceAccountToken: {path: token}},
        {downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: wait, resource: limits.cpu}}]}}]}}]}}}}
  defaults:
    podTemplate: {spec: *pod}
    service: {sessionAffinity: ClientIP, ports: [{name: extra, port: 9000}]}
  frontProxies: [{name: main, autoscaling: {maxReplicas: 3}}]
`

// What Argo CD, Flux or kubectl apply --server-side has applied from rendered manifests, kcpctl up leaves as it is: what
// the API server adds to an object makes no value differ.
func TestManifestsThatOthersHaveApplied(t *testing.T) {
	apiserver.Need(t)
	texts := map[string]string{"overlaid": overlaid}
	for _, name := range examples.Names() {
		text, err := examples.Read(name)
		require.NoError(t, err)
		texts[name] = string(text)
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		t.Run(name, func(t *testing.T) {
			rt, objects := openText(t, "applied-"+name, texts[name])
			applyAs(t, "argocd-controller", objects, metav1.ApplyOptions{})
			applyAs(t, topology.ManagedBy, objects, metav1.ApplyOptions{DryRun: []string{metav1.DryRunAll}})
			p, err := rt.Plan(t.Context(), objects, run.PlanOptions{})
			require.NoError(t, err)
			require.Empty(t, p.Conflicts)
			require.Equal(t, len(objects), p.Count(plan.Unchanged), p.Summary())
		})
	}
}

// applyAs applies objects as a field manager. Conflicts are an error. It waits until the API server serves the kinds of
// CustomResourceDefinitions that it has applied before.
func applyAs(t *testing.T, manager string, objects []render.Object, o metav1.ApplyOptions) {
	t.Helper()
	_, client := connect(t)
	o.FieldManager = manager
	var failed []error
	for _, k := range kind.Applied {
		for _, object := range objects {
			if object.GroupVersionKind() != k.GroupVersionKind || k.Shared && o.DryRun != nil {
				continue
			}
			var at dynamic.ResourceInterface = client.Resource(k.GVR())
			if !k.ClusterScoped {
				at = client.Resource(k.GVR()).Namespace(object.GetNamespace())
			}
			var err error
			require.Eventually(t, func() bool {
				_, err = at.Apply(t.Context(), object.GetName(), object.Unstructured, o)
				return !apierrors.IsNotFound(err)
			}, time.Minute, 100*time.Millisecond, "%s is served", k.Kind)
			failed = append(failed, err)
		}
	}
	require.NoError(t, parallel.Join(failed))
}

package long

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// deployment is a Deployment with labels.
const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, labels: %s}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, ports: [{containerPort: 80}], env: [{name: A, value: b}], envFrom: [{configMapRef: {name: web}}], resources: {requests: {cpu: 100m}}}]}`

// TestLocalWorkloads runs the example of workloads with another shard: kcpctl up starts the controller and registers
// the physical cluster. Users deploy to it from a workspace on the other shard.
func TestLocalWorkloads(t *testing.T) {
	w := framework.NewWorkloads(t)
	w.Eventually(func() error { return w.IsReady("True", "Ready") })
	require.Empty(t, w.Kcpctl(t, "diff").Stdout)
	status := w.Kcpctl(t, "status").OK(t).Stdout
	for _, id := range []string{"workloads/controller", "cluster/c1", "workspace/root:team"} {
		require.Contains(t, status, id)
	}

	w.Apply("root:team", framework.DeploymentGVR, fmt.Sprintf(deployment, "{workloads.kcp.dev/cluster: c1}"))
	w.Apply("root:team", framework.ConfigMapGVR, `
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: default, labels: {workloads.kcp.dev/cluster: c1}}
data: {a: b}`)
	began := time.Now()
	var below *unstructured.Unstructured
	w.Eventually(func() (err error) { below, err = belowWorkloads(w, framework.DeploymentGVR); return err })
	t.Logf("the Deployment is in the cluster %s after it was created", time.Since(began).Round(10*time.Millisecond))
	w.Eventually(func() error { _, err := belowWorkloads(w, framework.ConfigMapGVR); return err })
	containers, _, _ := unstructured.NestedSlice(below.Object, "spec", "template", "spec", "containers")
	require.Equal(t, []any{map[string]any{"containerPort": int64(80), "protocol": "TCP"}}, containers[0].(map[string]any)["ports"])

	statusComesUp(w, below)

	for _, r := range []schema.GroupVersionResource{framework.DeploymentGVR, framework.ConfigMapGVR} {
		require.NoError(t, w.In("root:team").Resource(r).Namespace("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	}
	w.Eventually(func() error { return nothingIsLeft(w) })

	scheduled(w)
	pulled(w)

	w.Kcpctl(t, "down", "--yes").OK(t)
	accounts, err := w.Physical.Resource(framework.AccountGVR).Namespace("kcpctl-syncer").List(t.Context(), metav1.ListOptions{LabelSelector: "kcpctl.dev/setup"})
	require.NoError(t, err)
	require.Empty(t, accounts.Items, "the account of the syncer is removed")

	w.Up(t)
	w.Eventually(func() error { return w.IsReady("True", "Ready") })
	stopped := time.Now()
	require.NoError(t, w.Server.Stop())
	w.Eventually(func() error { return w.IsReady("False", "Unreachable") })
	t.Logf("the cluster is not ready %s after its API server was asked to stop", time.Since(stopped).Round(time.Second))
	refused := w.Kcpctl(t, "down", "--yes")
	require.Equal(t, 1, refused.Code)
	require.Contains(t, refused.Stderr, "remove it from spec.workloads.clusters")
	w.Write(t, w.Text[:strings.Index(w.Text, "  workloads:")])
}

// scheduled creates a Deployment without a cluster, before the ConfigMap that it needs.
func scheduled(w *framework.Workloads) {
	w.Helper()
	w.Apply("root:team", framework.DeploymentGVR, fmt.Sprintf(deployment, "{app: web}"))
	var below *unstructured.Unstructured
	w.Eventually(func() (err error) { below, err = belowWorkloads(w, framework.DeploymentGVR); return err })
	w.Eventually(func() error {
		d, err := w.Get("root:team", framework.DeploymentGVR, "default", "web")
		if text := fmt.Sprint(d); err != nil || !strings.Contains(text, "configmaps/web does not exist") {
			return fmt.Errorf("no condition about the missing ConfigMap: %s: %w", text, err)
		}
		return nil
	})
	w.Apply("root:team", framework.ConfigMapGVR, `{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: default}, data: {a: b}}`)
	w.Eventually(func() error { _, err := belowWorkloads(w, framework.ConfigMapGVR); return err })
	w.Eventually(func() error { _, err := w.Get("root:team", framework.DeploymentGVR, "default", "web--c1"); return err })
	statusComesUp(w, below)
	require.NoError(w, w.In("root:team").Resource(framework.DeploymentGVR).Namespace("default").Delete(w.Context(), "web", metav1.DeleteOptions{}))
	w.Eventually(func() error {
		if _, err := w.Get("root:team", framework.ConfigMapGVR, "default", "web--c1"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the leaf of the ConfigMap: %w", err)
		}
		return nil
	})
	require.NoError(w, w.In("root:team").Resource(framework.ConfigMapGVR).Namespace("default").Delete(w.Context(), "web", metav1.DeleteOptions{}))
	w.Eventually(func() error { return nothingIsLeft(w) })
}

// belowWorkloads returns the only object of a resource in the physical cluster that was synced.
func belowWorkloads(w *framework.Workloads, r schema.GroupVersionResource) (*unstructured.Unstructured, error) {
	list, err := w.Physical.Resource(r).List(w.Context(), metav1.ListOptions{LabelSelector: "workloads.kcp.dev/setup"})
	switch {
	case err != nil:
		return nil, err
	case len(list.Items) != 1 || list.Items[0].GetName() != "web":
		return nil, fmt.Errorf("%d %s in the cluster", len(list.Items), r.Resource)
	}
	return &list.Items[0], nil
}

// statusComesUp writes a status as a controller of the physical cluster would, and waits for it in the workspace.
func statusComesUp(w *framework.Workloads, o *unstructured.Unstructured) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"status":{"replicas":2,"readyReplicas":2,"observedGeneration":%d}}`, o.GetGeneration())
	_, err := w.Physical.Resource(framework.DeploymentGVR).Namespace(o.GetNamespace()).Patch(
		w.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(w, err)
	w.Eventually(func() error {
		d, err := w.Get("root:team", framework.DeploymentGVR, "default", "web")
		if err != nil {
			return err
		}
		ready, _, _ := unstructured.NestedInt64(d.Object, "status", "readyReplicas")
		observed, _, _ := unstructured.NestedInt64(d.Object, "status", "observedGeneration")
		if ready != 2 || observed != d.GetGeneration() {
			return fmt.Errorf("status: %v", d.Object["status"])
		}
		return nil
	})
}

// nothingIsLeft fails if there is anything of the objects on either side. It completes the deletion of namespaces, as a
// controller of the physical cluster would.
func nothingIsLeft(w *framework.Workloads) error {
	for _, r := range []schema.GroupVersionResource{framework.DeploymentGVR, framework.ConfigMapGVR} {
		if _, err := w.Get("root:team", r, "default", "web"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s web is in the workspace: %w", r.Resource, err)
		}
		list, err := w.Physical.Resource(r).List(w.Context(), metav1.ListOptions{LabelSelector: "workloads.kcp.dev/setup"})
		if err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%d %s in the cluster: %w", len(list.Items), r.Resource, err)
		}
	}
	list, err := w.Physical.Resource(framework.NamespaceGVR).List(w.Context(), metav1.ListOptions{LabelSelector: "workloads.kcp.dev/setup"})
	if err != nil {
		return err
	}
	for _, ns := range list.Items {
		if ns.GetDeletionTimestamp() == nil {
			return fmt.Errorf("namespace %s is in the cluster", ns.GetName())
		}
		unstructured.RemoveNestedField(ns.Object, "spec", "finalizers")
		if _, err := w.Physical.Resource(framework.NamespaceGVR).Update(w.Context(), &ns, metav1.UpdateOptions{}, "finalize"); err != nil {
			return err
		}
	}
	return nil
}

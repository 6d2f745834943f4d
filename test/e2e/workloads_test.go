//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

var (
	clusterGVR    = schema.GroupVersionResource{Group: "workloads.kcp.dev", Version: "v1alpha1", Resource: "clusters"}
	deploymentGVR = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	secretGVR     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	accountGVR    = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	configMapGVR  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaceGVR  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// workloads is a setup with a controller, and a physical cluster without nodes: the test plays its controllers.
type workloads struct {
	*testing.T
	*setup
	kcp      *rest.Config
	server   *apiserver.Server
	physical dynamic.Interface
}

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
	w := newWorkloads(t)
	w.eventually(func() error { return w.isReady("True", "Ready") })
	require.Empty(t, w.kcpctl(t, "diff").stdout)
	status := w.kcpctl(t, "status").ok(t).stdout
	for _, id := range []string{"workloads/controller", "cluster/c1", "workspace/root:team"} {
		require.Contains(t, status, id)
	}

	w.apply("root:team", deploymentGVR, fmt.Sprintf(deployment, "{workloads.kcp.dev/cluster: c1}"))
	w.apply("root:team", configMapGVR, `
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: default, labels: {workloads.kcp.dev/cluster: c1}}
data: {a: b}`)
	began := time.Now()
	var below *unstructured.Unstructured
	w.eventually(func() (err error) { below, err = w.below(deploymentGVR); return err })
	t.Logf("the Deployment is in the cluster %s after it was created", time.Since(began).Round(10*time.Millisecond))
	w.eventually(func() error { _, err := w.below(configMapGVR); return err })
	containers, _, _ := unstructured.NestedSlice(below.Object, "spec", "template", "spec", "containers")
	require.Equal(t, []any{map[string]any{"containerPort": int64(80), "protocol": "TCP"}}, containers[0].(map[string]any)["ports"])

	w.statusComesUp(below)

	for _, r := range []schema.GroupVersionResource{deploymentGVR, configMapGVR} {
		require.NoError(t, w.in("root:team").Resource(r).Namespace("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	}
	w.eventually(func() error { return w.nothingIsLeft() })

	w.scheduled()
	w.pulled()

	w.kcpctl(t, "down", "--yes").ok(t)
	accounts, err := w.physical.Resource(accountGVR).Namespace("kcpctl-syncer").List(t.Context(), metav1.ListOptions{LabelSelector: "kcpctl.dev/setup"})
	require.NoError(t, err)
	require.Empty(t, accounts.Items, "the account of the syncer is removed")

	w.up(t)
	w.eventually(func() error { return w.isReady("True", "Ready") })
	stopped := time.Now()
	require.NoError(t, w.server.Stop())
	w.eventually(func() error { return w.isReady("False", "Unreachable") })
	t.Logf("the cluster is not ready %s after its API server was asked to stop", time.Since(stopped).Round(time.Second))
	refused := w.kcpctl(t, "down", "--yes")
	require.Equal(t, 1, refused.code)
	require.Contains(t, refused.stderr, "remove it from spec.workloads.clusters")
	w.write(t, w.text[:strings.Index(w.text, "  workloads:")])
}

// scheduled creates a Deployment without a cluster, before the ConfigMap that it needs.
func (w *workloads) scheduled() {
	w.Helper()
	w.apply("root:team", deploymentGVR, fmt.Sprintf(deployment, "{app: web}"))
	var below *unstructured.Unstructured
	w.eventually(func() (err error) { below, err = w.below(deploymentGVR); return err })
	w.eventually(func() error {
		d, err := w.get("root:team", deploymentGVR, "default", "web")
		if text := fmt.Sprint(d); err != nil || !strings.Contains(text, "configmaps/web does not exist") {
			return fmt.Errorf("no condition about the missing ConfigMap: %s: %w", text, err)
		}
		return nil
	})
	w.apply("root:team", configMapGVR, `{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: default}, data: {a: b}}`)
	w.eventually(func() error { _, err := w.below(configMapGVR); return err })
	w.eventually(func() error { _, err := w.get("root:team", deploymentGVR, "default", "web--c1"); return err })
	w.statusComesUp(below)
	require.NoError(w, w.in("root:team").Resource(deploymentGVR).Namespace("default").Delete(w.Context(), "web", metav1.DeleteOptions{}))
	w.eventually(func() error {
		if _, err := w.get("root:team", configMapGVR, "default", "web--c1"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the leaf of the ConfigMap: %w", err)
		}
		return nil
	})
	require.NoError(w, w.in("root:team").Resource(configMapGVR).Namespace("default").Delete(w.Context(), "web", metav1.DeleteOptions{}))
	w.eventually(func() error { return w.nothingIsLeft() })
}

func newWorkloads(t *testing.T) *workloads {
	t.Helper()
	server, err := apiserver.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	s := newLocal(t, "workloads")
	w := &workloads{T: t, setup: s, server: server}
	file, err := w.server.Kubeconfig(apiserver.Admin)
	require.NoError(t, err)
	cfg, err := connect.File(file, "")
	require.NoError(t, err)
	w.physical, err = dynamic.NewForConfig(cfg)
	require.NoError(t, err)
	s.text = strings.Replace(s.text, "    - name: c1", "    - name: c1\n      kubeconfig: "+file, 1)
	s.text = strings.Replace(s.text, "  - name: team", "  - {name: team, selector: {name: beta}, type: \"root:compute:workload\"}\n  external: {hostname: kcp.example.com} # not used on this machine\n  rootShard: {virtualWorkspaceURL: \"https://root.example.com\"}\n  shards: [{name: beta, virtualWorkspaceURL: \"https://beta.example.com\"}]\n  #", 1)
	s.text = strings.Replace(s.text, "\n    type: root:compute:workload", "", 1)
	s.write(t, s.text)
	s.up(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller: %s", s.command("logs", "workloads/controller").run(context.Background(), t).stdout)
		}
	})
	admin := filepath.Join(t.TempDir(), "kcp.kubeconfig")
	require.NoError(t, os.WriteFile(admin, []byte(s.kcpctl(t, "kubeconfig", "admin").ok(t).stdout), 0o600))
	w.kcp, err = connect.KCP(admin, "")
	require.NoError(t, err)
	return w
}

// in returns a client for a workspace.
func (w *workloads) in(workspace string) dynamic.Interface {
	w.Helper()
	d, err := dynamic.NewForConfig(connect.Workspace(w.kcp, workspace))
	require.NoError(w, err)
	return d
}

func (w *workloads) eventually(condition func() error) {
	w.Helper()
	eventually(w.Context(), w.T, condition)
}

// apply creates an object as soon as the workspace serves its API.
func (w *workloads) apply(workspace string, r schema.GroupVersionResource, text string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(w, err)
	require.NoError(w, u.UnmarshalJSON(raw))
	client := w.in(workspace).Resource(r)
	w.eventually(func() error {
		_, err := client.Namespace(u.GetNamespace()).Apply(w.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "e2e"})
		return err
	})
}

func (w *workloads) get(workspace string, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	w.Helper()
	return w.in(workspace).Resource(r).Namespace(namespace).Get(w.Context(), name, metav1.GetOptions{})
}

// isReady compares the condition Ready of the Cluster.
func (w *workloads) isReady(status, reason string) error {
	o, err := w.get("root:compute", clusterGVR, "", "c1")
	if err != nil {
		return err
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if m := c.(map[string]any); m["type"] == "Ready" && m["status"] == status && m["reason"] == reason {
			return nil
		}
	}
	return fmt.Errorf("Cluster c1: %v", o.Object["status"])
}

// below returns the only object of a resource in the physical cluster that was synced.
func (w *workloads) below(r schema.GroupVersionResource) (*unstructured.Unstructured, error) {
	list, err := w.physical.Resource(r).List(w.Context(), metav1.ListOptions{LabelSelector: "workloads.kcp.dev/setup"})
	switch {
	case err != nil:
		return nil, err
	case len(list.Items) != 1 || list.Items[0].GetName() != "web":
		return nil, fmt.Errorf("%d %s in the cluster", len(list.Items), r.Resource)
	}
	return &list.Items[0], nil
}

// statusComesUp writes a status as a controller of the physical cluster would, and waits for it in the workspace.
func (w *workloads) statusComesUp(o *unstructured.Unstructured) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"status":{"replicas":2,"readyReplicas":2,"observedGeneration":%d}}`, o.GetGeneration())
	_, err := w.physical.Resource(deploymentGVR).Namespace(o.GetNamespace()).Patch(
		w.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(w, err)
	w.eventually(func() error {
		d, err := w.get("root:team", deploymentGVR, "default", "web")
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
func (w *workloads) nothingIsLeft() error {
	for _, r := range []schema.GroupVersionResource{deploymentGVR, configMapGVR} {
		if _, err := w.get("root:team", r, "default", "web"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s web is in the workspace: %w", r.Resource, err)
		}
		list, err := w.physical.Resource(r).List(w.Context(), metav1.ListOptions{LabelSelector: "workloads.kcp.dev/setup"})
		if err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%d %s in the cluster: %w", len(list.Items), r.Resource, err)
		}
	}
	list, err := w.physical.Resource(namespaceGVR).List(w.Context(), metav1.ListOptions{LabelSelector: "workloads.kcp.dev/setup"})
	if err != nil {
		return err
	}
	for _, ns := range list.Items {
		if ns.GetDeletionTimestamp() == nil {
			return fmt.Errorf("namespace %s is in the cluster", ns.GetName())
		}
		unstructured.RemoveNestedField(ns.Object, "spec", "finalizers")
		if _, err := w.physical.Resource(namespaceGVR).Update(w.Context(), &ns, metav1.UpdateOptions{}, "finalize"); err != nil {
			return err
		}
	}
	return nil
}

//go:build e2e && long

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

	"github.com/kcpctl/kcpctl/internal/workload/connect"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

var (
	workspaceGVR  = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
	typeGVR       = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspacetypes"}
	clusterGVR    = schema.GroupVersionResource{Group: "workloads.kcp.dev", Version: "v1alpha1", Resource: "clusters"}
	deploymentGVR = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	configMapGVR  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secretGVR     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespaceGVR  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// workloads is a kcp with a controller, and a physical cluster without nodes: the test plays its controllers.
type workloads struct {
	*testing.T
	kcp      *rest.Config
	server   *apiserver.Server
	physical dynamic.Interface
	setup    *setup
	// log is the log of the controller.
	log string
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

// TestWorkloads deploys to a physical cluster from a workspace on another shard than the root shard.
func TestWorkloads(t *testing.T) {
	w := newWorkloads(t)
	w.apply("root", workspaceGVR, `{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: compute}}`)
	w.ready("root", "compute")
	w.startController()
	w.addCluster()
	w.eventually(func() error { return w.isReady("True", "Ready") })
	w.eventually(func() error { _, err := w.get("root:compute", typeGVR, "", "workload"); return err })
	w.apply("root", workspaceGVR, `
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: team}
spec: {type: {name: workload, path: "root:compute"}, location: {selector: {matchLabels: {name: beta}}}}`)
	w.ready("root", "team")

	w.apply("root:team", deploymentGVR, fmt.Sprintf(deployment, "{workloads.kcp.dev/cluster: c1}"))
	w.apply("root:team", configMapGVR, `
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: default, labels: {workloads.kcp.dev/cluster: c1}}
data: {a: b}`)
	w.apply("root:team", configMapGVR, `{apiVersion: v1, kind: ConfigMap, metadata: {name: elsewhere, namespace: default, labels: {workloads.kcp.dev/cluster: c2}}}`)
	began := time.Now()
	var below *unstructured.Unstructured
	w.eventually(func() (err error) { below, err = w.below(deploymentGVR); return err })
	t.Logf("the Deployment is in the cluster %s after it was created", time.Since(began).Round(10*time.Millisecond))
	w.eventually(func() error { _, err := w.below(configMapGVR); return err })
	containers, _, _ := unstructured.NestedSlice(below.Object, "spec", "template", "spec", "containers")
	require.Equal(t, []any{map[string]any{"containerPort": int64(80), "protocol": "TCP"}}, containers[0].(map[string]any)["ports"])

	w.statusComesUp(below)
	w.confined()

	for _, r := range []schema.GroupVersionResource{deploymentGVR, configMapGVR} {
		require.NoError(t, w.in("root:team").Resource(r).Namespace("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	}
	w.eventually(func() error { return w.nothingIsLeft() })

	w.scheduled()

	require.NoError(t, w.server.Stop())
	stopped := time.Now()
	w.eventually(func() error { return w.isReady("False", "Unreachable") })
	t.Logf("the cluster is not ready %s after its API server was stopped", time.Since(stopped).Round(time.Second))
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
	_, err := w.get("root:team", deploymentGVR, "default", "web--c1")
	require.NoError(w, err)
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
	s := newLocal(t, "sharded", "--base-port", strconv.Itoa(10000+100*rand.IntN(200)))
	s.up(t)
	file := filepath.Join(t.TempDir(), "kcp.kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(s.kcpctl(t, "kubeconfig", "admin").ok(t).stdout), 0o600))
	w := &workloads{T: t, setup: s, log: filepath.Join(t.TempDir(), "controller.log")}
	var err error
	w.kcp, err = connect.KCP(file, "")
	require.NoError(t, err)
	w.server, err = apiserver.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.server.Stop() })
	t.Setenv("KCPCTL_E2E_KUBECONFIG", file)
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

func (w *workloads) ready(parent, name string) {
	w.Helper()
	w.eventually(func() error {
		o, err := w.get(parent, workspaceGVR, "", name)
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "Ready" {
			return fmt.Errorf("workspace %s: %v", name, o.Object["status"])
		}
		return nil
	})
}

func (w *workloads) startController() {
	w.Helper()
	log, err := os.Create(w.log)
	require.NoError(w, err)
	c := exec.Command(os.Getenv("E2E_KCPCTL"), "controller", "--kubeconfig", os.Getenv("KCPCTL_E2E_KUBECONFIG"), "--workspace", "root:compute")
	c.Stdout, c.Stderr = log, log
	require.NoError(w, c.Start())
	w.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
		if text, err := os.ReadFile(w.log); err == nil && w.Failed() {
			w.Logf("the controller: %s", text)
		}
	})
}

// addCluster adds the physical cluster in push mode.
func (w *workloads) addCluster() {
	w.Helper()
	file, err := w.server.Kubeconfig(apiserver.Admin)
	require.NoError(w, err)
	cfg, err := connect.File(file, "")
	require.NoError(w, err)
	w.physical, err = dynamic.NewForConfig(cfg)
	require.NoError(w, err)
	text, err := os.ReadFile(file)
	require.NoError(w, err)
	content, err := json.Marshal(string(text))
	require.NoError(w, err)
	w.apply("root:compute", secretGVR, fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: c1, namespace: default}, stringData: {kubeconfig: %s}}`, content))
	w.apply("root:compute", clusterGVR, `
apiVersion: workloads.kcp.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
spec: {syncMode: Push, kubeconfigSecretRef: {namespace: default, name: c1}}`)
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

// nothingIsLeft fails if there is anything of the objects on either side. It completes the deletion of namespaces, as a controller of
// the physical cluster would.
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

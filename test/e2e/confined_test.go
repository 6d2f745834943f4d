//go:build e2e && long

package e2e

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/workload/connect"
)

// syncerUser is a user with the permissions of the syncer of cluster c1, as docs/workloads.md has them.
const syncerUser = "e2e-syncer-c1"

// confined reads and writes with the permissions of a syncer: kcp shows it what is scheduled to its cluster, and nothing else. The
// workspace has a ConfigMap web of the cluster c1, one that is scheduled elsewhere, and one without a cluster.
func (w *workloads) confined() {
	w.Helper()
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	bindings := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	w.apply("root:compute", roles, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: syncer-c1}
rules:
- {apiGroups: [apis.kcp.io], resources: [apiexports/content], resourceNames: [cluster-c1], verbs: [get, list, watch, update, patch]}`)
	for name, role := range map[string]string{"syncer-c1": "syncer-c1", "syncer-c1-access": "system:kcp:workspace:access"} {
		w.apply("root:compute", bindings, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "%s"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}]`, name, role, syncerUser))
	}
	file := filepath.Join(w.TempDir(), "syncer.kubeconfig")
	require.NoError(w, os.WriteFile(file, []byte(w.setup.kcpctl(w.T, "kubeconfig", "--user", syncerUser).ok(w.T).stdout), 0o600))
	cfg, err := connect.KCP(file, "")
	require.NoError(w, err)

	own, all := w.virtual(cfg, "cluster-c1"), w.virtual(cfg, "kubernetes")
	w.eventually(func() error {
		list, err := own("*").Resource(configMapGVR).List(w.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("no ConfigMap")
		}
		return err
	})
	exported, err := w.get("root:compute", exportGVR, "", "kubernetes")
	require.NoError(w, err)
	served := []schema.GroupVersionResource{configMapGVR, secretGVR, {Version: "v1", Resource: "serviceaccounts"}}
	resources, _, _ := unstructured.NestedSlice(exported.Object, "spec", "resources")
	for _, r := range resources {
		m := r.(map[string]any)
		served = append(served, schema.GroupVersionResource{Group: m["group"].(string), Version: "v1", Resource: m["name"].(string)})
	}
	for _, r := range served {
		list, err := own("*").Resource(r).List(w.Context(), metav1.ListOptions{})
		require.NoError(w, err, r.Resource)
		for _, o := range list.Items {
			require.Equal(w, "c1", o.GetLabels()["workloads.kcp.dev/cluster"], "%s %s", r.Resource, o.GetName())
		}
		_, err = all("*").Resource(r).List(w.Context(), metav1.ListOptions{})
		require.True(w, apierrors.IsForbidden(err), "%s of all workspaces: %v", r.Resource, err)
	}
	team := w.logicalCluster("root:team")
	for _, name := range []string{"elsewhere", "kube-root-ca.crt"} {
		_, err = own(team).Resource(configMapGVR).Namespace("default").Get(w.Context(), name, metav1.GetOptions{})
		require.True(w, apierrors.IsNotFound(err), "%s: %v", name, err)
	}
	maps := own(team).Resource(configMapGVR).Namespace("default")
	_, err = maps.Patch(w.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"workloads.kcp.dev/cluster":"c2"}}}`), metav1.PatchOptions{})
	require.True(w, apierrors.IsForbidden(err), "another label: %v", err)
	fresh := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "fresh", "namespace": "default", "labels": map[string]any{"workloads.kcp.dev/cluster": "c1"},
	}}}
	fresh.SetAPIVersion("v1")
	fresh.SetKind("ConfigMap")
	_, err = maps.Create(w.Context(), fresh, metav1.CreateOptions{})
	require.True(w, apierrors.IsForbidden(err), "create: %v", err)
	require.True(w, apierrors.IsForbidden(maps.Delete(w.Context(), "web", metav1.DeleteOptions{})), "delete")
	d, err := dynamic.NewForConfig(connect.Workspace(cfg, "root:team"))
	require.NoError(w, err)
	_, err = d.Resource(configMapGVR).List(w.Context(), metav1.ListOptions{})
	require.True(w, apierrors.IsForbidden(err), "the workspace itself: %v", err)
}

var (
	exportGVR = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}
	sliceGVR  = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexportendpointslices"}
)

// virtual returns clients for the logical clusters of the virtual workspace of an APIExport, on the shard of the only workspace.
func (w *workloads) virtual(cfg *rest.Config, export string) func(cluster string) dynamic.Interface {
	w.Helper()
	var url string
	w.eventually(func() error {
		slice, err := w.get("root:compute", sliceGVR, "", export)
		if err != nil {
			return err
		}
		endpoints, _, _ := unstructured.NestedSlice(slice.Object, "status", "endpoints")
		if len(endpoints) != 1 {
			return fmt.Errorf("APIExportEndpointSlice %s has the endpoints %v", export, endpoints)
		}
		url, _ = endpoints[0].(map[string]any)["url"].(string)
		return nil
	})
	return func(cluster string) dynamic.Interface {
		c := rest.CopyConfig(cfg)
		c.Host = url + "/clusters/" + cluster
		d, err := dynamic.NewForConfig(c)
		require.NoError(w, err)
		return d
	}
}

// logicalCluster returns the name of the logical cluster of a workspace.
func (w *workloads) logicalCluster(workspace string) string {
	w.Helper()
	o, err := w.get(workspace, namespaceGVR, "", "default")
	require.NoError(w, err)
	return o.GetAnnotations()["kcp.io/cluster"]
}

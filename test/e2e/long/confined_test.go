package long

import (
	"fmt"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// confined reads and writes with the credential of the syncer of cluster c2: kcp shows it what is scheduled to its
// cluster, and nothing else. The workspace has a ConfigMap web of the cluster c2, one that is scheduled elsewhere, and
// one without a cluster.
func confined(w *framework.Workloads) {
	w.Helper()
	cfg, err := connect.KCP(syncerFile(w, "kubeconfig", "kcp.kubeconfig"), "")
	require.NoError(w, err)

	own, all := virtual(w, cfg, "cluster-c2"), virtual(w, cfg, "kubernetes")
	w.Eventually(func() error {
		list, err := own("*").Resource(framework.ConfigMapGVR).List(w.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("no ConfigMap")
		}
		return err
	})
	exported, err := w.Get("root:compute", framework.ExportGVR, "", "kubernetes")
	require.NoError(w, err)
	served := []schema.GroupVersionResource{framework.ConfigMapGVR, framework.SecretGVR, {Version: "v1", Resource: "serviceaccounts"}}
	resources, _, _ := unstructured.NestedSlice(exported.Object, "spec", "resources")
	for _, r := range resources {
		m := r.(map[string]any)
		served = append(served, schema.GroupVersionResource{Group: m["group"].(string), Version: "v1", Resource: m["name"].(string)})
	}
	for _, r := range served {
		var list *unstructured.UnstructuredList
		w.Eventually(func() (err error) { // a new virtual workspace does not serve them all at once
			list, err = own("*").Resource(r).List(w.Context(), metav1.ListOptions{})
			return err
		})
		for _, o := range list.Items {
			require.Equal(w, "c2", o.GetLabels()["workloads.kcp.dev/cluster"], "%s %s", r.Resource, o.GetName())
		}
		for _, other := range []struct {
			name string
			in   dynamic.Interface
		}{
			{"all workspaces", all("*")}, {"cluster c1", virtual(w, cfg, "cluster-c1")("*")},
			{"root", w.As(cfg, "root")}, {"root:team", w.As(cfg, "root:team")},
		} {
			w.Forbidden(r.Resource+" of "+other.name, func() error {
				_, err := other.in.Resource(r).List(w.Context(), metav1.ListOptions{})
				return err
			})
		}
	}
	w.ConfinedInCompute(w.As(cfg, "root:compute"))
	team := logicalCluster(w, "root:team")
	for _, name := range []string{"elsewhere", "kube-root-ca.crt"} {
		_, err = own(team).Resource(framework.ConfigMapGVR).Namespace("default").Get(w.Context(), name, metav1.GetOptions{})
		require.True(w, apierrors.IsNotFound(err), "%s: %v", name, err)
	}
	maps := own(team).Resource(framework.ConfigMapGVR).Namespace("default")
	_, err = maps.Patch(w.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"workloads.kcp.dev/cluster":"c1"}}}`), metav1.PatchOptions{})
	require.True(w, apierrors.IsForbidden(err), "another label: %v", err)
	fresh := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "fresh", "namespace": "default", "labels": map[string]any{"workloads.kcp.dev/cluster": "c2"},
	}}}
	fresh.SetAPIVersion("v1")
	fresh.SetKind("ConfigMap")
	_, err = maps.Create(w.Context(), fresh, metav1.CreateOptions{})
	require.True(w, apierrors.IsForbidden(err), "create: %v", err)
	require.True(w, apierrors.IsForbidden(maps.Delete(w.Context(), "web", metav1.DeleteOptions{})), "delete")
}

// virtual returns clients for the logical clusters of the virtual workspace of an APIExport, on the shard of the only
// workspace.
func virtual(w *framework.Workloads, cfg *rest.Config, export string) func(cluster string) dynamic.Interface {
	w.Helper()
	var url string
	w.Eventually(func() error {
		slice, err := w.Get("root:compute", framework.SliceGVR, "", export)
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
func logicalCluster(w *framework.Workloads, workspace string) string {
	w.Helper()
	o, err := w.Get(workspace, framework.NamespaceGVR, "", "default")
	require.NoError(w, err)
	return o.GetAnnotations()["kcp.io/cluster"]
}

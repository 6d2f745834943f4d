//go:build e2e && long

package e2e

import (
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
)

// confined reads and writes with the credential of the syncer of cluster c2: kcp shows it what is scheduled to its
// cluster, and nothing else. The workspace has a ConfigMap web of the cluster c2, one that is scheduled elsewhere, and
// one without a cluster.
func (w *workloads) confined() {
	w.Helper()
	cfg, err := connect.KCP(w.syncerFile("kubeconfig", "kcp.kubeconfig"), "")
	require.NoError(w, err)

	own, all := w.virtual(cfg, "cluster-c2"), w.virtual(cfg, "kubernetes")
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
		var list *unstructured.UnstructuredList
		w.eventually(func() (err error) { // a new virtual workspace does not serve them all at once
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
			{"all workspaces", all("*")}, {"cluster c1", w.virtual(cfg, "cluster-c1")("*")},
			{"root", w.as(cfg, "root")}, {"root:team", w.as(cfg, "root:team")},
		} {
			w.forbidden(r.Resource+" of "+other.name, func() error {
				_, err := other.in.Resource(r).List(w.Context(), metav1.ListOptions{})
				return err
			})
		}
	}
	w.confinedInCompute(w.as(cfg, "root:compute"))
	team := w.logicalCluster("root:team")
	for _, name := range []string{"elsewhere", "kube-root-ca.crt"} {
		_, err = own(team).Resource(configMapGVR).Namespace("default").Get(w.Context(), name, metav1.GetOptions{})
		require.True(w, apierrors.IsNotFound(err), "%s: %v", name, err)
	}
	maps := own(team).Resource(configMapGVR).Namespace("default")
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

// forbidden requires that a request is forbidden. Another failure is no answer: a server can still be starting.
func (w *workloads) forbidden(what string, try func() error) {
	w.Helper()
	var err error
	w.eventually(func() error {
		if err = try(); err == nil || apierrors.IsForbidden(err) {
			return nil
		}
		return err
	})
	require.Error(w, err, "%s is not forbidden", what)
}

// confinedInCompute tries what a syncer may and may not do in the compute workspace.
func (w *workloads) confinedInCompute(compute dynamic.Interface) {
	w.Helper()
	leases := compute.Resource(leaseGVR).Namespace("default")
	w.eventually(func() error {
		if _, err := compute.Resource(clusterGVR).Get(w.Context(), "c2", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := leases.Get(w.Context(), "cluster-c2", metav1.GetOptions{})
		return err
	})
	status := []byte(`{"status":{"version":"v0"}}`)
	refused := map[string]func() error{
		"another Cluster": func() error {
			_, err := compute.Resource(clusterGVR).Get(w.Context(), "c1", metav1.GetOptions{})
			return err
		},
		"all Clusters": func() error {
			_, err := compute.Resource(clusterGVR).List(w.Context(), metav1.ListOptions{})
			return err
		},
		"the status of its own Cluster": func() error {
			_, err := compute.Resource(clusterGVR).Patch(w.Context(), "c2", types.MergePatchType, status, metav1.PatchOptions{}, "status")
			return err
		},
		"another Lease": func() error { _, err := leases.Get(w.Context(), "cluster-c1", metav1.GetOptions{}); return err },
		"to write another Lease": func() error {
			_, err := leases.Patch(w.Context(), "cluster-c1", types.MergePatchType, []byte(`{"spec":{"holderIdentity":"x"}}`), metav1.PatchOptions{})
			return err
		},
		"what another cluster serves": func() error {
			_, err := compute.Resource(configMapGVR).Namespace("default").Patch(
				w.Context(), "cluster-c1.deployments.apps", types.ApplyYAMLPatchType, []byte("{apiVersion: v1, kind: ConfigMap}"), metav1.PatchOptions{FieldManager: "e2e"})
			return err
		},
		"ConfigMaps": func() error {
			_, err := compute.Resource(configMapGVR).Namespace("default").List(w.Context(), metav1.ListOptions{})
			return err
		},
		"Secrets": func() error {
			_, err := compute.Resource(secretGVR).Namespace("default").List(w.Context(), metav1.ListOptions{})
			return err
		},
		"APIExports": func() error {
			_, err := compute.Resource(exportGVR).List(w.Context(), metav1.ListOptions{})
			return err
		},
		"other endpoints": func() error {
			_, err := compute.Resource(sliceGVR).Get(w.Context(), "cluster-c1", metav1.GetOptions{})
			return err
		},
	}
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		w.forbidden(what, refused[what])
	}
}

// as returns a client for a workspace, with another credential than that of an administrator.
func (w *workloads) as(cfg *rest.Config, workspace string) dynamic.Interface {
	w.Helper()
	d, err := dynamic.NewForConfig(connect.Workspace(cfg, workspace))
	require.NoError(w, err)
	return d
}

var (
	exportGVR = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}
	leaseGVR  = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	sliceGVR  = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexportendpointslices"}
)

// virtual returns clients for the logical clusters of the virtual workspace of an APIExport, on the shard of the only
// workspace.
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

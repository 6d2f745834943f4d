package framework

import (
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
)

// Forbidden requires that a request is forbidden. Another failure is retried: a server can still be starting.
func (w *Workloads) Forbidden(what string, try func() error) {
	w.Helper()
	var err error
	w.Eventually(func() error {
		if err = try(); err == nil || apierrors.IsForbidden(err) {
			return nil
		}
		return err
	})
	require.Error(w, err, "%s is not forbidden", what)
}

// ConfinedInCompute tries what a syncer may and may not do in the compute workspace.
func (w *Workloads) ConfinedInCompute(compute dynamic.Interface) {
	w.Helper()
	leases := compute.Resource(leaseGVR).Namespace("default")
	w.Eventually(func() error {
		if _, err := compute.Resource(ClusterGVR).Get(w.Context(), "c2", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := leases.Get(w.Context(), "cluster-c2", metav1.GetOptions{})
		return err
	})
	status := []byte(`{"status":{"version":"v0"}}`)
	refused := map[string]func() error{
		"another Cluster": func() error {
			_, err := compute.Resource(ClusterGVR).Get(w.Context(), "c1", metav1.GetOptions{})
			return err
		},
		"all Clusters": func() error {
			_, err := compute.Resource(ClusterGVR).List(w.Context(), metav1.ListOptions{})
			return err
		},
		"the status of its own Cluster": func() error {
			_, err := compute.Resource(ClusterGVR).Patch(w.Context(), "c2", types.MergePatchType, status, metav1.PatchOptions{}, "status")
			return err
		},
		"another Lease": func() error { _, err := leases.Get(w.Context(), "cluster-c1", metav1.GetOptions{}); return err },
		"to write another Lease": func() error {
			_, err := leases.Patch(w.Context(), "cluster-c1", types.MergePatchType, []byte(`{"spec":{"holderIdentity":"x"}}`), metav1.PatchOptions{})
			return err
		},
		"what another cluster serves": func() error {
			_, err := compute.Resource(ConfigMapGVR).Namespace("default").Patch(
				w.Context(), "cluster-c1.deployments.apps", types.ApplyYAMLPatchType, []byte("{apiVersion: v1, kind: ConfigMap}"), metav1.PatchOptions{FieldManager: "e2e"})
			return err
		},
		"ConfigMaps": func() error {
			_, err := compute.Resource(ConfigMapGVR).Namespace("default").List(w.Context(), metav1.ListOptions{})
			return err
		},
		"Secrets": func() error {
			_, err := compute.Resource(SecretGVR).Namespace("default").List(w.Context(), metav1.ListOptions{})
			return err
		},
		"APIExports": func() error {
			_, err := compute.Resource(ExportGVR).List(w.Context(), metav1.ListOptions{})
			return err
		},
		"other endpoints": func() error {
			_, err := compute.Resource(SliceGVR).Get(w.Context(), "cluster-c1", metav1.GetOptions{})
			return err
		},
	}
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		w.Forbidden(what, refused[what])
	}
}

// As returns a client for a workspace, with another credential than that of an administrator.
func (w *Workloads) As(cfg *rest.Config, workspace string) dynamic.Interface {
	w.Helper()
	d, err := dynamic.NewForConfig(connect.Workspace(cfg, workspace))
	require.NoError(w, err)
	return d
}

var (
	ExportGVR = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}
	leaseGVR  = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	SliceGVR  = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexportendpointslices"}
)

package kcp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

func TestPatchObject(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		const root = "/clusters/root:compute/apis/workloads.kcp.dev/v1alpha1"
		gv := schema.GroupVersion{Group: "workloads.kcp.dev", Version: "v1alpha1"}
		at := plan.Ref{Workspace: "root:compute", GroupVersionKind: gv.WithKind("Cluster"), Name: "c1"}
		k.Always("GET "+root, fakekcp.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
		_, err := c.Resources(t.Context(), "root:compute", gv)
		require.ErrorIs(t, err, kcp.ErrNotServed)
		_, err = c.PatchObject(t.Context(), at, map[string]any{"spec": nil})
		require.ErrorIs(t, err, kcp.ErrNotServed)
		require.ErrorContains(t, err, "Kind=Cluster")

		k.Always("GET "+root, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"kind": "APIResourceList", "resources": []any{
			map[string]any{"name": "clusters", "kind": "Cluster"}, map[string]any{"name": "clusters/status", "kind": "Cluster"},
		}}})
		all, err := c.Resources(t.Context(), "root:compute", gv)
		require.NoError(t, err)
		require.Equal(t, []metav1.APIResource{{Name: "clusters", Kind: "Cluster"}}, all)

		k.Always("PATCH "+root+"/clusters/c1", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
			"apiVersion": gv.String(), "kind": "Cluster", "metadata": map[string]any{"name": "c1"},
		}})
		o, err := c.PatchObject(t.Context(), at, map[string]any{"spec": map[string]any{"unschedulable": true}})
		require.NoError(t, err)
		require.Equal(t, "c1", o.GetName())
		at.Name = "c2"
		k.Always("PATCH "+root+"/clusters/c2", fakekcp.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "clusters c2 not found"))
		_, err = c.PatchObject(t.Context(), at, map[string]any{"spec": nil})
		require.ErrorContains(t, err, "c2 not found")
	})
}

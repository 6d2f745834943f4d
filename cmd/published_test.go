package cmd

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// Objects are listed in the virtual workspaces of all shards with workspaces that use the APIs.
func TestObjectsOfAllShardsAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _, _ := newClusterSession(t)
		rt := bringUp(t)
		openAs(s.env, rt)
		compute := kcpapi.Workspace.New("compute")
		compute.Object["status"] = map[string]any{"phase": "Ready"}
		rt.Kcp.PutIn("root/workspaces/compute", compute)
		c, err := openCompute(t.Context(), s.env, s.flags)
		require.NoError(t, err)
		defer s.close()
		names := func() (out []string, err error) {
			err = c.EachObject(t.Context(), schema.GroupResource{Group: "apps", Resource: "deployments"},
				func(o *unstructured.Unstructured) { out = append(out, o.GetName()) })
			return out, err
		}
		_, err = names()
		require.ErrorContains(t, err, "APIExportEndpointSlice kubernetes in root:compute does not exist")

		const path = "/services/apiexport/abc/kubernetes"
		serve := func(urls ...any) {
			slice := kcpapi.APIExportEndpointSlice.New("kubernetes")
			slice.Object["status"] = map[string]any{"endpoints": urls}
			rt.Kcp.PutIn("root:compute/apiexportendpointslices/kubernetes", slice)
		}
		serve(map[string]any{"url": s.topology.Root().VirtualWorkspaceURL + path})
		rt.Kcp.Always("GET "+path+"/clusters/*/apis/apps", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"preferredVersion": map[string]any{"version": "v1"}}})
		list := "GET " + path + "/clusters/*/apis/apps/v1/deployments"
		rt.Kcp.Always(list, fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
			"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": map[string]any{},
			"items": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"}}},
		}})
		found, err := names()
		require.NoError(t, err)
		require.Equal(t, []string{"web"}, found)

		rt.Kcp.Always(list, fakekcp.Answer{Code: http.StatusForbidden, Body: map[string]any{"kind": "Status", "reason": "Forbidden", "code": 403}})
		_, err = names()
		require.ErrorContains(t, err, "root-shard: list deployments.apps")
		serve(map[string]any{"url": "https://elsewhere.example.com" + path})
		_, err = names()
		require.ErrorContains(t, err, "elsewhere.example.com"+path+" belongs to no shard of the setup")
	})
}

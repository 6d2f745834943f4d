package kcp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// partial is the metadata of an object in a logical cluster.
func partial(cluster, namespace, name string) map[string]any {
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": map[string]any{
		"name": name, "namespace": namespace, "annotations": map[string]any{"kcp.io/cluster": cluster},
	}}
}

// Each object is written in its own logical cluster. One that is deleted meanwhile is none, and every other refusal is
// an error: its object may still need the previous key.
func TestRewrite(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		k.Always("GET /clusters/*/api/v1/secrets", fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
			"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": map[string]any{},
			"items": []any{partial("root", "default", "a"), partial("x7k2m9qd", "team", "b"), partial("x7k2m9qd", "team", "gone")},
		}})
		path := func(cluster, namespace, name string) string {
			return "PATCH /clusters/" + cluster + "/api/v1/namespaces/" + namespace + "/secrets/" + name
		}
		for _, p := range [][3]string{{"root", "default", "a"}, {"x7k2m9qd", "team", "b"}} {
			k.Always(path(p[0], p[1], p[2]), fakekcp.Answer{Code: http.StatusOK, Body: partial(p[0], p[1], p[2])})
		}
		k.Always(path("x7k2m9qd", "team", "gone"), fakekcp.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, `secrets "gone" not found`))
		var seen []int
		n, err := c.Rewrite(t.Context(), secrets, func(done int) { seen = append(seen, done) })
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []int{3}, seen)

		k.Always(path("x7k2m9qd", "team", "b"), fakekcp.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "the workspace is inactive"))
		_, err = c.Rewrite(t.Context(), secrets, func(int) {})
		require.EqualError(t, err, "write secrets team/b of logical cluster x7k2m9qd again: the workspace is inactive")
	})
}

package kcp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// The annotations with the shard of a workspace, and the hash of the name beta, as kcp has written it.
const (
	shardName  = "core.kcp.io/shard"
	shardHash  = "internal.tenancy.kcp.io/shard"
	hashOfBeta = "1du27qut"
)

// Before v0.32, kcp writes only the hash.
func TestWorkspaceShard(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"not scheduled":                {nil, ""},
		"named":                        {map[string]string{shardName: "alpha"}, "alpha"},
		"named, of another setup":      {map[string]string{shardName: "gamma"}, "gamma"},
		"moved":                        {map[string]string{shardName: "alpha", shardHash: hashOfBeta}, "alpha"},
		"hashed":                       {map[string]string{shardHash: hashOfBeta}, "beta"},
		"the hash of an unknown shard": {map[string]string{shardHash: "1pfxsevk"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &unstructured.Unstructured{}
			w.SetAnnotations(tc.annotations)
			require.Equal(t, tc.want, kcp.WorkspaceShard(w, []string{"alpha", "beta"}))
		})
	}
}

func TestDeletedWorkspaces(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		identity, err := c.WorkspaceIdentity(t.Context())
		require.NoError(t, err)
		k.Script(fakekcp.ListDeleted, fakekcp.DeletedWorkspaces(map[string]map[string]string{
			"root:named":     {shardName: "beta", shardHash: hashOfBeta},
			"root:hashed":    {shardHash: hashOfBeta},
			"root:moved":     {shardName: "alpha", shardHash: hashOfBeta},
			"root:elsewhere": {shardHash: "1pfxsevk"},
			"root:nowhere":   {},
		}))
		names, err := c.DeletedWorkspaces(t.Context(), identity, "beta")
		require.NoError(t, err)
		require.Equal(t, []string{"root:hashed", "root:named"}, names)

		k.AddWorkspace("kept", nil)
		kept := k.Workspace("kept")
		kept.SetAnnotations(map[string]string{shardName: "beta", "kcp.io/cluster": "root"})
		k.Script(fakekcp.ListDeleted, ok(map[string]any{
			"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": []any{kept.Object},
		}), fakekcp.Refuse(http.StatusNotFound, "NotFound", "no workspaces here"), fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not you"))
		for range 2 { // one that is not being deleted; a shard without Workspaces
			names, err = c.DeletedWorkspaces(t.Context(), identity, "beta")
			require.NoError(t, err)
			require.Empty(t, names)
		}
		_, err = c.DeletedWorkspaces(t.Context(), identity, "beta")
		require.EqualError(t, err, "list workspaces.tenancy.kcp.io: not you")

		k.Script(fakekcp.GetExport, fakekcp.Export("tenancy.kcp.io", ""))
		_, err = c.WorkspaceIdentity(t.Context())
		require.EqualError(t, err, "APIExport tenancy.kcp.io has no identity yet")
	})
}

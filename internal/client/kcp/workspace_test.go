package kcp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// The hash of the name beta, as kcp has written it.
const hashOfBeta = "1du27qut"

func TestDeletedWorkspaces(t *testing.T) {
	const name, hash = "core.kcp.io/shard", "internal.tenancy.kcp.io/shard"
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		identity, err := c.WorkspaceIdentity(t.Context())
		require.NoError(t, err)
		k.Script(fakekcp.ListDeleted, fakekcp.DeletedWorkspaces(map[string]map[string]string{
			"root:named":     {name: "beta", hash: hashOfBeta},
			"root:hashed":    {hash: hashOfBeta},
			"root:moved":     {name: "alpha", hash: hashOfBeta},
			"root:elsewhere": {hash: "1pfxsevk"},
			"root:nowhere":   {},
		}))
		names, err := c.DeletedWorkspaces(t.Context(), identity, "beta")
		require.NoError(t, err)
		require.Equal(t, []string{"root:hashed", "root:named"}, names)

		k.AddWorkspace("kept", nil)
		kept := k.Workspace("kept")
		kept.SetAnnotations(map[string]string{name: "beta", "kcp.io/cluster": "root"})
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

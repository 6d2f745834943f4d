package framework

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/usage"
)

// measures looks at what top and capacity say about a setup after CreateWorkspaces.
func measures(t *testing.T, s *Setup) {
	var used struct{ Items []usage.Component }
	require.NoError(t, s.Kcpctl(t, "top", "--output", "json").OK(t).Decode(&used))
	require.NotEmpty(t, used.Items)
	for _, u := range used.Items {
		require.Empty(t, u.Reason, u.Component)
		require.NotNil(t, u.Memory, u.Component)
		require.NotNil(t, u.RequestsPerSecond, u.Component)
		if kind := u.Component.Kind(); kind == topology.RootShard || kind == topology.Shard {
			require.NotNil(t, u.P99, u.Component)
			require.Positive(t, *u.LogicalClusters, u.Component)
			require.Positive(t, *u.Database, u.Component)
			require.EqualValues(t, 2<<30, u.Quota, u.Component)
		}
	}

	var full struct{ Items []usage.Capacity }
	require.NoError(t, s.Kcpctl(t, "capacity", "--output", "json").OK(t).Decode(&full))
	for _, c := range full.Items {
		require.NotEmpty(t, c.Shares, c.Component)
	}

	var stored struct{ Items []usage.Workspace }
	require.NoError(t, s.Kcpctl(t, "top", "workspaces", "--output", "json").OK(t).Decode(&stored))
	for _, path := range []string{"root", "root:on-alpha"} {
		i := slices.IndexFunc(stored.Items, func(w usage.Workspace) bool { return w.Path == path })
		require.GreaterOrEqual(t, i, 0, path)
		require.Greater(t, stored.Items[i].Objects, 10, path) // roles, namespaces, bindings
		require.Greater(t, stored.Items[i].Bytes, int64(1000), path)
	}
}

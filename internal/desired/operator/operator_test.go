package operator

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	for kind, want := range map[string]string{
		"RootShard": "a-kcp", "Shard": "a-shard-kcp", "FrontProxy": "a-front-proxy", "CacheServer": "a-cache-server",
		"VirtualWorkspace": "a-virtual-workspace",
	} {
		require.Equal(t, want, Service(kind, "a"))
	}
	for _, name := range AuthoritySecrets("a") {
		require.Contains(t, KeySecrets("a"), name)
	}
	for _, own := range []string{"operator.kcp.io/v1alpha1", "deploy.operator.kcp.io/v1alpha1"} {
		require.True(t, OwnGroup(own), own)
	}
	require.False(t, OwnGroup("operator.kcp.io.example.com/v1"))
	require.True(t, OwnFinalizer("operator.kcp.io/cleanup-shard"))
	require.False(t, OwnFinalizer("example.com/operator.kcp.io"))
}

package release_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/release"
)

// Every change of kcp's flags, with the releases around it.
func TestOf(t *testing.T) {
	for v, want := range map[string]release.Features{
		"v0.28.0":      {Kubernetes: "v1.32.3", ExternalHostname: true, VWShardExternalURL: true},
		"v0.28.3":      {Kubernetes: "v1.32.3", ExternalHostname: true, VWShardExternalURL: true},
		"v0.29.1":      {Kubernetes: "v1.33.3", ExternalHostname: true, VWShardExternalURL: true, WorkspaceAuthentication: true, FrontProxyGates: true},
		"v0.29.2":      {Kubernetes: "v1.33.3", ExternalHostname: true, VWShardExternalURL: true, WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true},
		"v0.30.1":      {Kubernetes: "v1.34.2", ExternalHostname: true, VWShardExternalURL: true, WorkspaceAuthentication: true, FrontProxyGates: true},
		"v0.30.3":      {Kubernetes: "v1.34.2", ExternalHostname: true, VWShardExternalURL: true, WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true},
		"v0.31.1":      {Kubernetes: "v1.35.1", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true},
		"v0.31.4":      {Kubernetes: "v1.35.1", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true, VWExternalAdmin: true},
		"v0.31.6":      {Kubernetes: "v1.35.1", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true, VWExternalAdmin: true, MountProxy: true},
		"v0.32.0":      {Kubernetes: "v1.36.0", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true, VWExternalAdmin: true, Migration: true, MetricsReader: true},
		"v0.32.2":      {Kubernetes: "v1.36.0", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true, VWExternalAdmin: true, Migration: true, MetricsReader: true},
		"v0.32.3":      {Kubernetes: "v1.36.0", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true, VWExternalAdmin: true, Migration: true, MetricsReader: true, MountProxy: true},
		"v0.33.0-rc.1": {Kubernetes: "v1.36.0", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true, VWExternalAdmin: true, Migration: true, MetricsReader: true, MountProxy: true, OwnShards: true},
		"v1.0.0":       {Kubernetes: "v1.36.0", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true, VWExternalAdmin: true, Migration: true, MetricsReader: true, MountProxy: true, OwnShards: true},
		"v0.32.3-rc.1": {Kubernetes: "v1.36.0", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true, VWExternalAdmin: true, Migration: true, MetricsReader: true, MountProxy: true},
		"v0.27.0":      {Kubernetes: "v1.32.3", ExternalHostname: true, VWShardExternalURL: true},
		"main":         {Kubernetes: "v1.36.0", WorkspaceAuthentication: true, FrontProxyGates: true, CacheClientCA: true, CacheEtcd: true, VWExternalAdmin: true, Migration: true, MetricsReader: true, MountProxy: true},
	} {
		t.Run(v, func(t *testing.T) { require.Equal(t, want, release.Of(v)) })
	}
}

func TestKnown(t *testing.T) {
	require.Equal(t, []string{
		"v0.28.0", "v0.29.0", "v0.29.2", "v0.30.0", "v0.30.2", "v0.31.0", "v0.31.2", "v0.31.6", "v0.32.0", "v0.32.3",
	}, release.Known())
}

func TestNewerNote(t *testing.T) {
	for _, v := range []string{"v0.28.0", "v0.32.3", "v0.32.3-rc.1", "main", ""} {
		require.Empty(t, release.NewerNote(v), v)
	}
	for _, v := range []string{"v0.32.4", "v0.33.0", "v0.33.0-rc.1", "v1.0.0"} {
		note := release.NewerNote(v)
		require.Contains(t, note, v)
		require.Contains(t, note, "flags of "+release.Newest)
		require.Equal(t, v != "v0.32.4", strings.Contains(note, "each shard owned its Shard object"), v)
	}
}

func TestExternalReviews(t *testing.T) {
	for v, want := range map[string]bool{"v0.30.3": false, "v0.31.2": false, "v0.31.3": true, "v0.32.3": true, "main": true} {
		require.Equal(t, want, release.ExternalReviews(v), v)
	}
}

// A release has the gates of the ones before it. Those of a release that is not known are not known either.
func TestGates(t *testing.T) {
	require.True(t, release.HasGate("v0.28.0", "WorkspaceMounts"))
	require.False(t, release.HasGate("v0.28.3", "WorkspaceAuthentication"))
	require.True(t, release.HasGate("v0.29.0", "WorkspaceAuthentication"))
	require.False(t, release.HasGate("v0.31.6", "LogicalClusterMigration"))
	require.True(t, release.HasGate("v0.32.3", "LogicalClusterMigration"))
	require.False(t, release.HasGate("v0.32.3", "logicalClusterMigration"))
	for _, v := range []string{"v0.33.0", "main"} {
		require.Nil(t, release.Gates(v))
		require.True(t, release.HasGate(v, "NewGate"))
	}
	require.Contains(t, release.Gates(release.Newest), "AllAlpha")
}

// What go.mod of the releases has.
func TestEmbeddedEtcd(t *testing.T) {
	for v, want := range map[string]string{
		"v0.28.0": "v3.5", "v0.29.3": "v3.5", "v0.30.0": "v3.6", "v0.30.3": "v3.6", "v0.31.6": "v3.6", "v0.32.3": "v3.6",
		"v0.27.1": "v3.5", "main": "v3.6",
	} {
		require.Equal(t, want, release.EmbeddedEtcd(v), v)
	}
	require.True(t, release.EtcdGoesBack("v0.30.0", "v0.29.3"))
	require.True(t, release.EtcdGoesBack("v0.32.3", "v0.28.0"))
	for from, to := range map[string]string{"v0.29.3": "v0.30.0", "v0.32.3": "v0.30.0", "main": "v0.29.3", "v0.30.0": ""} {
		require.False(t, release.EtcdGoesBack(from, to), "%s to %s", from, to)
	}
}

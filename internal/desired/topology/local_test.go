package topology_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// The names are in ports.json of existing setups, and new setups get their ports in this order.
func TestPortNames(t *testing.T) {
	s := topologytest.Setup(t, `spec:
  cacheServer: {}
  shards: [{name: alpha}]
  frontProxies: [{name: main}, {name: other}]
  virtualWorkspaces: [{name: root, shard: root}]
`)
	names := topology.PortNames(s)
	require.Equal(t, []string{
		"cache-server", "cache-server/etcd-client", "cache-server/etcd-peer",
		"root-shard", "root-shard/etcd-client", "root-shard/etcd-peer",
		"shard/alpha", "shard/alpha/etcd-client", "shard/alpha/etcd-peer",
		"front-proxy/main", "front-proxy/other", "virtual-workspaces/root",
	}, names)

	ports := map[string]int32{}
	for i, name := range names {
		ports[name] = 7000 + int32(i)
	}
	local := topology.BuildLocal(s, "/state/demo", ports)
	var used []int32
	for _, c := range local.Components {
		if c.Port != 0 {
			used = append(used, c.Port)
		}
		if c.Storage != nil {
			used = append(used, c.Storage.ClientPort, c.Storage.PeerPort)
		}
	}
	slices.Sort(used)
	require.Len(t, slices.Compact(used), len(names), "each port is one component's")
	require.Equal(t, topology.ComponentDir("/state/demo", "demo-shard-alpha")+"/data", local.Component("shard/alpha").DataDir)
}

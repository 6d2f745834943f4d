package pki

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Every client and every server is in a pair, however few pairs are wanted.
func TestConnections(t *testing.T) {
	names := []string{}
	for i := range 30 {
		names = append(names, fmt.Sprintf("{name: s%d}", i))
	}
	top := topologytest.Build(t, "spec: {cacheServer: {}, kubeconfigs: [{name: admin}], shards: ["+strings.Join(names, ", ")+"]}")
	ends := func(all []Connection) (clients map[LeafKey]bool, servers map[string]bool) {
		clients, servers = map[LeafKey]bool{}, map[string]bool{}
		for _, c := range all {
			require.NotEmpty(t, c.URL)
			require.NotEmpty(t, c.Host)
			clients[c.ClientCert], servers[c.URL+string(c.Server)] = true, true
		}
		return clients, servers
	}
	all, some := Connections(top, 1<<20), Connections(top, 100)
	require.Greater(t, len(all), 31*31)
	require.Less(t, len(some), len(all)/4)
	wantClients, wantServers := ends(all)
	clients, servers := ends(some)
	require.Equal(t, wantClients, clients)
	require.Equal(t, wantServers, servers)
	require.True(t, clients[LeafKey{Cluster: "default", Secret: "demo-kubeconfig-admin"}])
}

package topology_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// The first front-proxy is for users with tokens only, so components and kcpctl dial another one.
const refusing = `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, namespace: kcp}, {name: us, namespace: kcp-us}]
  cacheServer: {url: "https://cache.example.com"}
  rootShard: {cluster: eu, url: "https://root.example.com"}
  shards:
  - {name: alpha, cluster: us, url: "https://alpha.example.com"}
  - {name: beta, cluster: us, url: "https://beta.example.com", frontProxy: second}
  virtualWorkspaces: [{name: extra, frontProxy: third, url: "https://vw.example.com"}]
  frontProxies:
  - {name: edge, cluster: eu, authentication: {clientCertificates: false}}
  - {name: second, cluster: eu, external: {hostname: second.example.com, port: 443}}
  - {name: third, cluster: us, external: {hostname: third.example.com, port: 443}}
`

func TestFrontProxiesThatRefuseClientCertificates(t *testing.T) {
	top := topologytest.Build(t, refusing)
	for id, want := range map[topology.ID][2]string{
		"root-shard":               {"front-proxy/second", "https://demo-front-proxy-second.kcp.svc.cluster.local:443"},
		"shard/alpha":              {"front-proxy/third", "https://demo-front-proxy-third.kcp-us.svc.cluster.local:443"},
		"shard/beta":               {"front-proxy/second", "https://second.example.com:443"},
		"virtual-workspaces/extra": {"front-proxy/third", "https://third.example.com:443"},
	} {
		c := top.Component(id)
		require.Equal(t, want, [2]string{string(c.FrontProxy), c.FrontProxyURL}, id)
		require.Equal(t, "https://kcp.example.com:6443", top.Root().ExternalURL, "the URL for users is that of the first")
	}
	require.Equal(t, topology.ID("front-proxy/second"), top.OwnFrontProxy().ID())
	require.Equal(t, topology.ID("front-proxy/second"), top.Component("kubeconfig/admin").Access.Target)

	edge := top.Component("front-proxy/edge")
	require.NotContains(t, top.Bundles(edge), topology.ClientCA)
	for _, e := range top.Edges() {
		for _, s := range e.Servers {
			require.False(t, s.Component == edge.ID() && e.Accept == topology.ClientCA, "%v dial it with a client certificate", e.Clients)
		}
	}
}

func TestChooseFrontProxy(t *testing.T) {
	all := []topology.FrontProxyChoice{{"edge", "eu", false}, {"far", "us", true}, {"near", "eu", true}}
	for name, tc := range map[string]struct {
		name, cluster string
		want          int
	}{
		"on its own cluster":              {"", "eu", 2},
		"the first if there is none":      {"", "asia", 1},
		"by name":                         {"far", "eu", 1},
		"unknown, which is not validated": {"other", "eu", 0},
	} {
		require.Equal(t, tc.want, topology.ChooseFrontProxy(all, tc.name, tc.cluster), name)
	}
	require.Zero(t, topology.ChooseFrontProxy(all[:1], "", "eu"))
}

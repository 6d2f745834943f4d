package topology_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// everything has a component of every kind, two clusters, an etcd of three members and one of each kind of address.
const everything = `spec:
  version: v0.32.3
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, namespace: kcp}, {name: us, namespace: kcp-us, domain: us.local}]
  cacheServer: {cluster: eu, url: "https://cache.example.com:6443"}
  rootShard: {cluster: eu, url: "https://root.example.com:6443", etcd: {managed: {replicas: 3}}}
  shards:
  - {name: alpha, cluster: us, url: "https://alpha.example.com:6443", virtualWorkspaceURL: "https://alpha-vw.example.com"}
  frontProxies: [{name: main, cluster: eu}]
  virtualWorkspaces: [{name: extra, cluster: eu, url: "https://vw.example.com:6443"}]
  kubeconfigs: [{name: admin}]
`

// The golden is the review of all connections: who dials whom, where, with which certificate, trusting which authority.
func TestEdges(t *testing.T) {
	for name, top := range map[string]*topology.Topology{"clusters": topologytest.Build(t, everything), "local": topologytest.BuildLocal(t, everything)} {
		var b strings.Builder
		for _, e := range top.Edges() {
			fmt.Fprintf(&b, "%v as %q, trusting %s, accepted by %s", e.Clients, e.Cert, e.Trust, e.Accept)
			for _, more := range []struct{ what, value string }{
				{"only with", e.AllowedHost}, {"by kubeconfig", e.With}, {"in context", e.Context}, {"drawn as", e.Label},
			} {
				if more.value != "" {
					fmt.Fprintf(&b, ", %s %s", more.what, more.value)
				}
			}
			b.WriteString("\n")
			for _, s := range e.Servers {
				fmt.Fprintf(&b, "  %s %q at %s as %s\n", s.Component, s.Cert, s, s.Host)
			}
		}
		testutil.Golden(t, "edges-"+name+".txt", []byte(b.String()))
	}
}

// These are the connections without which kcp does not work, each with its source. An edge that vanishes from the table
// takes its proof, its certificate and its kubeconfig with it, so they are listed once more here.
func TestEdgesThatKcpNeeds(t *testing.T) {
	top := topologytest.Build(t, everything)
	for _, need := range []struct {
		why            string
		client, server topology.ID
		cert, url      string
		accept         topology.CA
	}{
		{"--logical-cluster-admin-kubeconfig, with the URL of each shard (kcp: pkg/server/config.go)",
			"root-shard", "shard/alpha", topology.CertLogicalClusterAdmin, "https://alpha.example.com:6443", topology.ClientCA},
		{"the same, of another shard", "shard/alpha", "root-shard", topology.CertLogicalClusterAdmin, "https://root.example.com:6443", topology.ClientCA},
		{"--external-logical-cluster-admin-kubeconfig (kcp: pkg/server/config.go)",
			"root-shard", "front-proxy/main", topology.CertExternalLogicalClusterAdmin, "https://demo-front-proxy-main.kcp.svc.cluster.local:6443", topology.ClientCA},
		{"the same from a cluster without a front-proxy",
			"shard/alpha", "front-proxy/main", topology.CertExternalLogicalClusterAdmin, "https://kcp.example.com:6443", topology.ClientCA},
		{"--root-shard-kubeconfig-file (kcp: pkg/server/config.go)",
			"shard/alpha", "root-shard", topology.CertClient, "https://root.example.com:6443", topology.ClientCA},
		{"--cache-kubeconfig (kcp: pkg/cache/client)",
			"shard/alpha", "cache-server", topology.CertClient, "https://cache.example.com:6443", topology.ClientCA},
		{"the same within a cluster",
			"root-shard", "cache-server", topology.CertClient, "https://demo-cache.kcp.svc.cluster.local:6443", topology.ClientCA},
		{"--shard-client-cert-file, to virtual workspaces of a shard (kcp: pkg/server/config.go)",
			"root-shard", "shard/alpha", topology.CertClient, "https://alpha-vw.example.com", topology.ClientCA},
		{"the same, to a server of virtual workspaces",
			"shard/alpha", "virtual-workspaces/extra", topology.CertClient, "https://vw.example.com:6443", topology.ClientCA},
		{"--root-kubeconfig (kcp: pkg/proxy/config.go)",
			"front-proxy/main", "root-shard", topology.CertShardClient, "https://demo-root.kcp.svc.cluster.local:6443", topology.ClientCA},
		{"--shards-kubeconfig, with the URL of each shard (kcp: pkg/proxy/config.go)",
			"front-proxy/main", "shard/alpha", topology.CertShardClient, "https://alpha.example.com:6443", topology.ClientCA},
		{"requests of users (kcp: pkg/proxy/mapping.go)",
			"front-proxy/main", "shard/alpha", topology.CertRequestHeader, "https://alpha.example.com:6443", topology.RequestHeaderCA},
		{"the path mapping (kcp: pkg/proxy/mapping.go)",
			"front-proxy/main", "root-shard", topology.CertRequestHeader, "https://demo-root.kcp.svc.cluster.local:6443", topology.RequestHeaderCA},
		{"--kubeconfig (kcp: cmd/virtual-workspaces/options)",
			"virtual-workspaces/extra", "root-shard", topology.CertClient, "https://demo-root.kcp.svc.cluster.local:6443", topology.ClientCA},
		{"--external-logical-cluster-admin-kubeconfig (kcp: cmd/virtual-workspaces/options)",
			"virtual-workspaces/extra", "front-proxy/main", topology.CertFrontProxyClient, "https://demo-front-proxy-main.kcp.svc.cluster.local:6443", topology.ClientCA},
		{"--cache-kubeconfig (kcp: cmd/virtual-workspaces/options)",
			"virtual-workspaces/extra", "cache-server", topology.CertClient, "https://demo-cache.kcp.svc.cluster.local:6443", topology.ClientCA},
		{"--etcd-servers (kcp: pkg/server/options)",
			"root-shard", "etcd/root", topology.CertEtcdClient, "https://demo-etcd-root.kcp.svc.cluster.local:2379", topology.EtcdCA},
		{"--initial-cluster (etcd)", "etcd/root", "etcd/root", topology.CertPeer, "demo-etcd-root-2.demo-etcd-root-peers.kcp.svc.cluster.local", topology.EtcdCA},
		{"probes of a member", "etcd/root", "etcd/root", topology.CertServer, "localhost", topology.EtcdCA},
		{"the user of a kubeconfig", "kubeconfig/admin", "front-proxy/main", topology.CertClient, "https://kcp.example.com:6443", topology.ClientCA},
		{"readiness and the canary", topology.Self, "shard/alpha", "", "demo-shard-alpha.kcp-us.svc.us.local", topology.ClientCA},
		{"replacement of a member", topology.Self, "etcd/root", "", "demo-etcd-root.kcp.svc.cluster.local", topology.EtcdCA},
	} {
		require.True(t, slices.ContainsFunc(top.Edges(), func(e topology.Edge) bool {
			return slices.Contains(e.Clients, need.client) && e.Cert == need.cert && e.Accept == need.accept &&
				slices.ContainsFunc(e.Servers, func(s topology.Endpoint) bool {
					return s.Component == need.server && s.String() == need.url
				})
		}), "%s: %s does not dial %s at %s with %q", need.why, need.client, need.server, need.url, need.cert)
	}
}

// A cache that is embedded in the root shard is not in the shard that a server of virtual workspaces works for.
func TestServersOfVirtualWorkspacesFindTheCache(t *testing.T) {
	const servers = "shards: [{name: alpha}], virtualWorkspaces: [{name: va, shard: alpha}, {name: vr, shard: root}]"
	for name, tc := range map[string]struct {
		spec string
		want map[topology.ID]topology.ID
	}{
		"embedded":     {servers, map[topology.ID]topology.ID{"virtual-workspaces/va": "root-shard"}},
		"cache server": {servers + ", cacheServer: {}", map[topology.ID]topology.ID{"virtual-workspaces/va": "cache-server", "virtual-workspaces/vr": "cache-server"}},
	} {
		t.Run(name, func(t *testing.T) {
			top := topologytest.Build(t, "spec: {"+tc.spec+"}")
			got := map[topology.ID]topology.ID{}
			for _, c := range top.OfKind(topology.VirtualWorkspaces) {
				for _, e := range top.EdgesFrom(c) {
					if e.Kubeconfig == topology.KubeconfigCache {
						got[c.ID()] = e.Servers[0].Component
					}
				}
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// Nothing is there for mounts of workspaces unless the setup file asks for them: no connection, so no certificate and
// no trust.
func TestMountsOnRequest(t *testing.T) {
	const servers = "shards: [{name: alpha}], virtualWorkspaces: [{name: va, shard: alpha}]"
	mounts := func(top *topology.Topology) (clients []topology.ID) {
		for _, e := range top.Edges() {
			if e.Cert == topology.CertMountsProxy || e.What == "mounted workspaces" {
				clients = append(clients, e.Clients...)
			}
		}
		return clients
	}
	for _, spec := range []string{servers, servers + ", featureGates: {WorkspaceMounts: false}"} {
		top := topologytest.Build(t, "spec: {"+spec+"}")
		require.Empty(t, mounts(top))
		require.NotContains(t, top.Bundles(top.Component("front-proxy/main")), topology.RequestHeaderCA)
	}
	top := topologytest.Build(t, "spec: {"+servers+", featureGates: {WorkspaceMounts: true}}")
	require.ElementsMatch(t, []topology.ID{"root-shard", "shard/alpha", "front-proxy/main"}, mounts(top))
	require.Contains(t, top.Bundles(top.Component("front-proxy/main")), topology.RequestHeaderCA)
}

// What terminates TLS in front of a front-proxy takes the certificate away that a front-proxy trusts forwarded
// identities for.
func TestMountsAvoidAnEdge(t *testing.T) {
	top := topologytest.Build(t, `spec:
  featureGates: {WorkspaceMounts: true}
  frontProxies:
  - {name: users, external: {hostname: kcp.example.com}, serving: {edge: true}, authentication: {clientCertificates: false}}
  - {name: public, external: {hostname: public.example.com}, serving: {secret: public}}
`)
	var servers []topology.ID
	for _, e := range top.EdgesFrom(top.Root()) {
		for _, s := range e.Servers {
			if e.Cert == topology.CertMountsProxy {
				servers = append(servers, s.Component)
			}
			require.NotEqual(t, topology.ID("front-proxy/users"), s.Component)
		}
	}
	require.Equal(t, []topology.ID{"front-proxy/public"}, servers)
	require.Contains(t, top.Bundles(top.Component("front-proxy/users")), topology.RequestHeaderCA, "it has the flags for it")
}

func TestDials(t *testing.T) {
	shard := func(name string) *topology.Component { return &topology.Component{Kind: topology.Shard, Name: name} }
	root, cache := &topology.Component{Kind: topology.RootShard}, &topology.Component{Kind: topology.CacheServer}
	proxy := &topology.Component{Kind: topology.FrontProxy, Name: "main"}
	vw := &topology.Component{Kind: topology.VirtualWorkspaces, Name: "extra", Serves: "shard/alpha"}
	cached := *vw
	cached.CacheServer = true
	for name, tc := range map[string]struct {
		from, to *topology.Component
		want     bool
	}{
		"shards each other":           {shard("alpha"), shard("beta"), true},
		"the root shard a shard":      {root, shard("alpha"), true},
		"a shard the cache":           {shard("alpha"), cache, true},
		"the cache no shard":          {cache, root, false},
		"a front-proxy all shards":    {proxy, shard("beta"), true},
		"a front-proxy no cache":      {proxy, cache, false},
		"virtual workspaces theirs":   {vw, shard("alpha"), true},
		"virtual workspaces no other": {vw, shard("beta"), false},
		"the cache in the root shard": {vw, root, true},
		"unless there is a server":    {&cached, root, false},
		"all shards their server":     {shard("beta"), vw, true},
	} {
		require.Equal(t, tc.want, tc.from.Dials(tc.to), name)
	}
	require.True(t, topology.VirtualWorkspaces.Dials(topology.FrontProxy))
	require.False(t, topology.CacheServer.Dials(topology.FrontProxy))
}

// Kinds list what their components do not need before what they need, so that the reverse order is one in which nothing
// that others still use goes down.
func TestKinds(t *testing.T) {
	require.Equal(t, []topology.Kind{
		topology.Base, topology.Etcd, topology.CacheServer, topology.RootShard, topology.Shard, topology.FrontProxy,
		topology.VirtualWorkspaces, topology.Kubeconfig, topology.Monitoring, topology.Workspace, topology.Agent,
		topology.Workloads, topology.Physical,
	}, topology.Kinds())
	for kind, want := range map[topology.Kind][]string{
		topology.Base:              nil,
		topology.Etcd:              {"join", "members", "peer", "peers", "server"},
		topology.CacheServer:       {"data", "etcd-client", "server"},
		topology.FrontProxy:        {"config", "kubeconfigs", "requestheader", "server", "shard-client"},
		topology.VirtualWorkspaces: {"client", "config", "front-proxy-client", "kubeconfigs", "server"},
		topology.Kubeconfig:        nil,
		topology.Monitoring:        {"dashboard"},
		topology.Agent:             {"client", "kubeconfigs", "service-cluster"},
		topology.Workloads:         {"client", "kubeconfigs"},
		topology.Physical:          {"client", "kubeconfigs", "token"},
		topology.Shard: {
			"client", "config", "data", "etcd-client", "external-logical-cluster-admin", "kubeconfigs", "logical-cluster-admin", "mounts-proxy", "server",
		},
	} {
		require.Equal(t, want, slices.Sorted(slices.Values(kind.Parts())), kind)
	}
	require.ElementsMatch(t, topology.Shard.Parts(), topology.RootShard.Parts())
	for id, short := range map[topology.ID]string{"root-shard": "root", "cache-server": "cache", "shard/alpha": "alpha", "shard/root-ish": "root-ish"} {
		require.Equal(t, short, id.ShortName())
		require.Equal(t, topology.ID("etcd/"+short), id.EtcdID())
		require.Equal(t, id, id.EtcdID().EtcdOwner())
	}
}

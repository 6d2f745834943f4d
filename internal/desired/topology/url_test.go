package topology_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestURLs(t *testing.T) {
	for name, tc := range map[string]struct {
		topology *topology.Topology
		want     string // ID: URL, external URL, virtual workspace URL, URL of the front-proxy
	}{
		"minimal": {topologytest.Build(t, ""), `
root-shard: https://demo-root.kcp.svc.cluster.local:6443 https://demo-front-proxy-main.kcp.svc.cluster.local:6443 https://demo-root.kcp.svc.cluster.local:6443 https://demo-front-proxy-main.kcp.svc.cluster.local:6443
front-proxy/main: https://demo-front-proxy-main.kcp.svc.cluster.local:6443 https://demo-front-proxy-main.kcp.svc.cluster.local:6443 - -
`},
		"external host and port belong to the first front-proxy": {topologytest.Build(t, ha), `
cache-server: https://demo-cache.kcp.svc.cluster.local:6443 - - -
root-shard: https://demo-root.kcp.svc.cluster.local:6443 https://kcp.example.com:8443 https://demo-root.kcp.svc.cluster.local:6443 https://demo-front-proxy-main.kcp.svc.cluster.local:8443
shard/alpha: https://demo-shard-alpha.kcp.svc.cluster.local:6443 https://kcp.example.com:8443 https://demo-shard-alpha.kcp.svc.cluster.local:6443 https://demo-front-proxy-main.kcp.svc.cluster.local:8443
front-proxy/main: https://demo-front-proxy-main.kcp.svc.cluster.local:8443 https://kcp.example.com:8443 - -
front-proxy/inner: https://demo-front-proxy-inner.kcp.svc.cluster.local:6443 https://demo-front-proxy-inner.kcp.svc.cluster.local:6443 - -
front-proxy/partner: https://demo-front-proxy-partner.kcp.svc.cluster.local:6443 https://partner.example.com:6443 - -
`},
		"a cluster without a front-proxy dials the first one from outside": {topologytest.Build(t, abroad), `
cache-server: https://cache.example.com:6443 - - -
root-shard: https://root.example.com:6443 https://kcp.example.com:6443 https://root.example.com:6443 https://demo-front-proxy-main.kcp.svc.cluster.local:6443
shard/alpha: https://alpha.example.com:8443 https://kcp.example.com:6443 https://alpha-vw.example.com:6443 https://demo-front-proxy-main.kcp.svc.cluster.local:6443
shard/beta: https://beta.example.com https://kcp.example.com:6443 https://beta-vw.example.com https://kcp.example.com:6443
front-proxy/main: https://demo-front-proxy-main.kcp.svc.cluster.local:6443 https://kcp.example.com:6443 - -
virtual-workspaces/extra: https://alpha-vw.example.com:6443 https://kcp.example.com:6443 - https://demo-front-proxy-main.kcp.svc.cluster.local:6443
`},
		"a cluster with a front-proxy dials its own": {topologytest.Build(t, near), `
cache-server: https://cache.example.com:6443 - - -
root-shard: https://root.example.com:6443 https://kcp.example.com:6443 https://root.example.com:6443 https://demo-front-proxy-main.kcp.svc.cluster.local:6443
shard/alpha: https://alpha.example.com:8443 https://kcp.example.com:6443 https://alpha-vw.example.com:6443 https://demo-front-proxy-main.kcp.svc.cluster.local:6443
shard/beta: https://beta.example.com https://kcp.example.com:6443 https://beta-vw.example.com https://demo-front-proxy-us.kcp-us.svc.us.local:6443
front-proxy/main: https://demo-front-proxy-main.kcp.svc.cluster.local:6443 https://kcp.example.com:6443 - -
front-proxy/us: https://demo-front-proxy-us.kcp-us.svc.us.local:6443 https://demo-front-proxy-us.kcp-us.svc.us.local:6443 - -
virtual-workspaces/extra: https://alpha-vw.example.com:6443 https://kcp.example.com:6443 - https://demo-front-proxy-main.kcp.svc.cluster.local:6443
`},
		"this machine": {topologytest.BuildLocal(t, ha), `
cache-server: https://127.0.0.1:7000 - - -
root-shard: https://127.0.0.1:7003 https://127.0.0.1:7009 https://127.0.0.1:7003 https://127.0.0.1:7009
shard/alpha: https://127.0.0.1:7006 https://127.0.0.1:7009 https://127.0.0.1:7006 https://127.0.0.1:7009
front-proxy/main: https://127.0.0.1:7009 https://127.0.0.1:7009 - -
front-proxy/inner: https://127.0.0.1:7010 https://127.0.0.1:7010 - -
front-proxy/partner: https://127.0.0.1:7011 https://127.0.0.1:7011 - -
`},
	} {
		t.Run(name, func(t *testing.T) {
			servers := &topology.Topology{Components: tc.topology.OfKind(
				topology.CacheServer, topology.RootShard, topology.Shard, topology.FrontProxy, topology.VirtualWorkspaces)}
			got := columns(servers, func(c *topology.Component) []any {
				return []any{c.URL, orDash(c.ExternalURL), orDash(c.VirtualWorkspaceURL), orDash(c.FrontProxyURL)}
			})
			require.Empty(t, cmp.Diff(strings.TrimPrefix(tc.want, "\n"), got))
		})
	}
}

// Load balancers listen on the port of the Service. Node ports, an Ingress and routes translate the port.
func TestExposed(t *testing.T) {
	top := topologytest.Build(t, exposedSetup)
	require.Empty(t, cmp.Diff(strings.TrimPrefix(`
cache-server: LoadBalancer 7443 0 https://cache.example.com:7443 [cache.example.com]
root-shard: Ingress 6443 0 https://root.example.com [root.example.com]
shard/alpha: NodePort 6443 31444 https://192.0.2.1:31444 [192.0.2.1]
shard/beta: NodePort 6443 31445 https://beta.example.com [beta.example.com]
shard/gamma: TLSRoute 6443 0 https://gamma.example.com [gamma.example.com gamma-vw.example.com]
shard/delta: ClusterIP 6443 0 https://delta.example.com [delta.example.com]
front-proxy/main: NodePort 6443 31443 https://demo-front-proxy-main.kcp.svc.cluster.local:6443 https://kcp.example.com:31443 [kcp.example.com]
front-proxy/side: Ingress 6443 0 https://demo-front-proxy-side.kcp.svc.cluster.local:6443 https://side.example.com:443 [side.example.com]
front-proxy/lb: LoadBalancer 443 0 https://demo-front-proxy-lb.kcp.svc.cluster.local:443 https://lb.example.com:443 [lb.example.com]
front-proxy/plain: ClusterIP 443 0 https://demo-front-proxy-plain.kcp.svc.cluster.local:443 https://plain.example.com:443 [plain.example.com]
`, "\n"), exposedColumns(top)))
	for _, c := range topologytest.BuildLocal(t, exposedSetup).Servers() {
		require.Empty(t, c.Expose, "expose is ignored on this machine")
		require.Equal(t, c.Port, c.ServicePort)
	}
}

const exposedSetup = `spec:
  external: {hostname: kcp.example.com, port: 31443}
  rootShard: {url: "https://root.example.com", expose: Ingress}
  cacheServer: {url: "https://cache.example.com:7443", expose: LoadBalancer}
  shards:
  - {name: alpha, url: "https://192.0.2.1:31444", expose: NodePort}
  - {name: beta, url: "https://beta.example.com", expose: {type: NodePort, nodePort: 31445}}
  - {name: gamma, url: "https://gamma.example.com", virtualWorkspaceURL: "https://gamma-vw.example.com", expose: {type: TLSRoute, gateway: {name: g}}}
  - {name: delta, url: "https://delta.example.com"}
  frontProxies:
  - {name: main, expose: NodePort}
  - {name: side, expose: Ingress, external: {hostname: side.example.com}}
  - {name: lb, expose: LoadBalancer, external: {hostname: lb.example.com, port: 443}}
  - {name: plain, external: {hostname: plain.example.com, port: 443}}
`

// A load balancer listens on the ports of its Service, whether expose or an overlay asks for it.
func TestALoadBalancerHasThePublicPort(t *testing.T) {
	for _, text := range []string{
		`{rootShard: {url: "https://root.example.com", expose: LoadBalancer}}`,
		`{rootShard: {url: "https://root.example.com", service: {type: LoadBalancer}}}`,
		`{rootShard: {url: "https://root.example.com"}, defaults: {service: {type: LoadBalancer}}}`,
	} {
		root := topologytest.Build(t, "spec: "+text).Root()
		require.EqualValues(t, []int32{6443, 443}, []int32{root.Port, root.ServicePort}, text)
		require.True(t, root.HasLoadBalancer(), text)
	}
	root := topologytest.Build(t, `spec: {rootShard: {url: "https://root.example.com", service: {type: NodePort}}}`).Root()
	require.EqualValues(t, 6443, root.ServicePort, "others translate the port")
}

// What a cluster assigns is part of URLs and certificates. What it has not assigned is pending.
func TestAssignedAddresses(t *testing.T) {
	s := topologytest.Setup(t, `spec:
  external: {hostname: kcp.example.com}
  cacheServer: {url: auto, expose: LoadBalancer}
  rootShard: {url: auto, expose: {type: NodePort, nodePort: 31440}}
  shards:
  - {name: alpha, url: auto, expose: NodePort}
  - {name: beta, url: "https://beta.example.com", expose: NodePort}
  frontProxies:
  - {name: main, expose: NodePort}
  - {name: lb, external: {hostname: auto, port: 443}, expose: LoadBalancer}
`)
	top := topology.BuildAt(s, topology.Addresses{
		"cache-server": {Host: "2001:db8::7"}, "root-shard": {Host: "192.0.2.1"}, "shard/alpha": {Host: "192.0.2.1", Port: 31441},
		"shard/beta": {Port: 31442}, "front-proxy/main": {Port: 31443}, "front-proxy/lb": {Host: "lb.cloud.example"},
	})
	require.Empty(t, cmp.Diff(strings.TrimPrefix(`
cache-server: LoadBalancer 6443 0 https://[2001:db8::7]:6443 [2001:db8::7]
root-shard: NodePort 6443 31440 https://192.0.2.1:31440 [192.0.2.1]
shard/alpha: NodePort 6443 31441 https://192.0.2.1:31441 [192.0.2.1]
shard/beta: NodePort 6443 31442 https://beta.example.com:31442 [beta.example.com]
front-proxy/main: NodePort 6443 31443 https://demo-front-proxy-main.kcp.svc.cluster.local:6443 https://kcp.example.com:31443 [kcp.example.com]
front-proxy/lb: LoadBalancer 443 0 https://demo-front-proxy-lb.kcp.svc.cluster.local:443 https://lb.cloud.example:443 [lb.cloud.example]
`, "\n"), exposedColumns(top)))
	require.Empty(t, top.Pending())
	require.Len(t, top.Assigned(), 6)
	require.Contains(t, top.Cache().Hosts(), "2001:db8::7")
	require.Equal(t, "https://192.0.2.1:31441", top.Component("shard/alpha").VirtualWorkspaceURL)

	unknown := topology.Build(s)
	require.Len(t, unknown.Pending(), 6)
	require.Zero(t, unknown.Component("shard/alpha").NodePort, "Kubernetes chooses one")
	local := topologytest.LocalOf(s)
	require.Empty(t, local.Assigned(), "expose is ignored on this machine")
}

func exposedColumns(top *topology.Topology) string {
	return columns(&topology.Topology{Components: top.Servers()}, func(c *topology.Component) []any {
		out := []any{c.Expose.Type, c.ServicePort, c.NodePort, c.URL}
		if c.Kind == topology.FrontProxy {
			out = append(out, c.ExternalURL)
		}
		return append(out, c.PublicHosts())
	})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func TestURLFrom(t *testing.T) {
	top := topologytest.Build(t, near)
	eu, us := top.Clusters[0], top.Clusters[1]
	alpha, main := top.Component("shard/alpha"), top.Component("front-proxy/main")
	require.Equal(t, "https://demo-shard-alpha.kcp.svc.cluster.local:6443", alpha.URLFrom(eu))
	require.Equal(t, "https://alpha.example.com:8443", alpha.URLFrom(us))
	require.Equal(t, "https://demo-front-proxy-main.kcp.svc.cluster.local:6443", main.URLFrom(eu))

	here := topologytest.BuildLocal(t, sharded)
	require.Equal(t, here.Root().URL, here.Root().URLFrom(here.Home))

	main = topologytest.Build(t, ha).Component("front-proxy/main")
	require.Equal(t, "https://demo-front-proxy-main.kcp.svc.cluster.local:8443", main.URLFrom(main.Cluster), "the port of its Service")
	require.EqualValues(t, []int32{6443, 8443}, []int32{main.Port, main.ServicePort})
}

func TestHosts(t *testing.T) {
	service := func(name, ns, domain string) []string {
		return []string{name, name + "." + ns, name + "." + ns + ".svc", name + "." + ns + ".svc." + domain, "localhost", "127.0.0.1", "::1"}
	}
	for name, tc := range map[string]struct {
		topology *topology.Topology
		id       topology.ID
		want     []string
	}{
		"shard":                         {topologytest.Build(t, ""), "root-shard", service("demo-root", "kcp", "cluster.local")},
		"shard with URLs":               {topologytest.Build(t, abroad), "shard/beta", append(service("demo-shard-beta", "kcp-us", "us.local"), "beta.example.com", "beta-vw.example.com")},
		"shard with a server besides":   {topologytest.Build(t, abroad), "shard/alpha", append(service("demo-shard-alpha", "kcp", "cluster.local"), "alpha.example.com")},
		"virtual workspaces":            {topologytest.Build(t, abroad), "virtual-workspaces/extra", append(service("demo-vw-extra", "kcp", "cluster.local"), "alpha-vw.example.com")},
		"front-proxy":                   {topologytest.Build(t, ha), "front-proxy/main", append(service("demo-front-proxy-main", "kcp", "cluster.local"), "kcp.example.com")},
		"second front-proxy":            {topologytest.Build(t, ha), "front-proxy/inner", service("demo-front-proxy-inner", "kcp", "cluster.local")},
		"front-proxy with its own name": {topologytest.Build(t, ha), "front-proxy/partner", append(service("demo-front-proxy-partner", "kcp", "cluster.local"), "partner.example.com")},
		"front-proxy with an address": {topologytest.Build(t, "spec: {external: {hostname: 192.0.2.7}}\n"), "front-proxy/main",
			append(service("demo-front-proxy-main", "kcp", "cluster.local"), "192.0.2.7")},
		"etcd": {topologytest.Build(t, ha), "etcd/root", append(service("demo-etcd-root", "kcp", "cluster.local"),
			"demo-etcd-root-0.demo-etcd-root-peers.kcp.svc.cluster.local",
			"demo-etcd-root-1.demo-etcd-root-peers.kcp.svc.cluster.local",
			"demo-etcd-root-2.demo-etcd-root-peers.kcp.svc.cluster.local")},
		"this machine": {topologytest.BuildLocal(t, ha), "front-proxy/main", []string{"localhost", "127.0.0.1", "::1"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, tc.topology.Component(tc.id).Hosts())
		})
	}
}

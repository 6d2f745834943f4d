package topology_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	sharded = `spec:
  cacheServer: {}
  shards: [{name: alpha}, {name: beta}]
`
	ha = `spec:
  version: v0.32.3
  external: {hostname: kcp.example.com, port: 8443}
  defaults: {replicas: 2}
  etcd: {managed: {replicas: 3, storage: 20Gi, storageClassName: fast}}
  cacheServer: {etcd: {managed: {}}}
  shards: [{name: alpha}]
  frontProxies: [{name: main}, {name: inner}, {name: partner, external: {hostname: partner.example.com}}]
`
	// abroad has shards on two clusters, and a front-proxy on one of them.
	abroad = `spec:
  external: {hostname: kcp.example.com}
  clusters:
  - {name: unused, namespace: nowhere}
  - {name: eu, context: eu-prod, namespace: kcp}
  - {name: us, namespace: kcp-us, domain: us.local}
  cacheServer: {cluster: eu, url: "https://cache.example.com:6443"}
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards:
  - {name: alpha, cluster: eu, url: "https://alpha.example.com:8443"}
  - {name: beta, cluster: us, url: "https://beta.example.com", virtualWorkspaceURL: "https://beta-vw.example.com"}
  virtualWorkspaces: [{name: extra, cluster: eu, shard: alpha, url: "https://alpha-vw.example.com:6443"}]
  kubeconfigs:
  - {name: admin}
  - {name: ops, target: {shard: beta}}
  - {name: boss, target: {shard: root}}
`
	// near is abroad with a front-proxy on each cluster.
	near = abroad + "  frontProxies: [{name: main, cluster: eu}, {name: us, cluster: us}]\n"
)

// columns shows some properties of every component, one line each.
func columns(t *topology.Topology, of func(*topology.Component) []any) string {
	var b strings.Builder
	for _, c := range t.Components {
		fmt.Fprintf(&b, "%s:", c.ID())
		for _, v := range of(c) {
			fmt.Fprintf(&b, " %v", v)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestComponents(t *testing.T) {
	for name, tc := range map[string]struct {
		topology *topology.Topology
		want     string // ID: object cluster needs
	}{
		"minimal": {topologytest.Build(t, ""), `
base/default: demo default []
etcd/root: demo-etcd-root default [base/default]
root-shard: demo-root default [base/default etcd/root]
front-proxy/main: demo-front-proxy-main default [base/default root-shard]
kubeconfig/admin: demo-kubeconfig-admin default [base/default front-proxy/main]
`},
		"sharded": {topologytest.Build(t, sharded), `
base/default: demo default []
cache-server: demo-cache default [base/default]
etcd/root: demo-etcd-root default [base/default]
root-shard: demo-root default [base/default etcd/root cache-server]
etcd/alpha: demo-etcd-alpha default [base/default]
shard/alpha: demo-shard-alpha default [base/default etcd/alpha cache-server root-shard]
etcd/beta: demo-etcd-beta default [base/default]
shard/beta: demo-shard-beta default [base/default etcd/beta cache-server root-shard]
front-proxy/main: demo-front-proxy-main default [base/default root-shard]
kubeconfig/admin: demo-kubeconfig-admin default [base/default front-proxy/main]
`},
		"ha": {topologytest.Build(t, ha), `
base/default: demo default []
etcd/cache: demo-etcd-cache default [base/default]
cache-server: demo-cache default [base/default etcd/cache]
etcd/root: demo-etcd-root default [base/default]
root-shard: demo-root default [base/default etcd/root cache-server]
etcd/alpha: demo-etcd-alpha default [base/default]
shard/alpha: demo-shard-alpha default [base/default etcd/alpha cache-server root-shard]
front-proxy/main: demo-front-proxy-main default [base/default root-shard]
front-proxy/inner: demo-front-proxy-inner default [base/default root-shard]
front-proxy/partner: demo-front-proxy-partner default [base/default root-shard]
kubeconfig/admin: demo-kubeconfig-admin default [base/default front-proxy/main]
`},
		"two clusters": {topologytest.Build(t, near), `
base/eu: demo eu []
base/us: demo us []
cache-server: demo-cache eu [base/eu]
etcd/root: demo-etcd-root eu [base/eu]
root-shard: demo-root eu [base/eu etcd/root cache-server]
etcd/alpha: demo-etcd-alpha eu [base/eu]
shard/alpha: demo-shard-alpha eu [base/eu etcd/alpha cache-server root-shard]
etcd/beta: demo-etcd-beta us [base/us]
shard/beta: demo-shard-beta us [base/us etcd/beta cache-server root-shard]
front-proxy/main: demo-front-proxy-main eu [base/eu root-shard]
front-proxy/us: demo-front-proxy-us us [base/us root-shard]
virtual-workspaces/extra: demo-vw-extra eu [base/eu shard/alpha front-proxy/main]
kubeconfig/admin: demo-kubeconfig-admin eu [base/eu front-proxy/main]
kubeconfig/ops: demo-kubeconfig-ops eu [base/eu shard/beta]
kubeconfig/boss: demo-kubeconfig-boss eu [base/eu root-shard]
`},
		"this machine": {topologytest.BuildLocal(t, sharded), `
base: demo  []
cache-server: demo-cache  [base]
root-shard: demo-root  [base cache-server]
shard/alpha: demo-shard-alpha  [base cache-server root-shard]
shard/beta: demo-shard-beta  [base cache-server root-shard]
front-proxy/main: demo-front-proxy-main  [base root-shard]
kubeconfig/admin: demo-kubeconfig-admin  [base front-proxy/main]
`},
	} {
		t.Run(name, func(t *testing.T) {
			got := columns(tc.topology, func(c *topology.Component) []any { return []any{c.Object(), c.Cluster.Name, c.Needs} })
			require.Empty(t, cmp.Diff(strings.TrimPrefix(tc.want, "\n"), got))
		})
	}
}

func TestClusters(t *testing.T) {
	top := topologytest.Build(t, near)
	require.Equal(t, []topology.Cluster{
		{Name: "eu", Context: "eu-prod", Namespace: "kcp", Domain: "cluster.local"},
		{Name: "us", Namespace: "kcp-us", Domain: "us.local"},
	}, top.Clusters, "those that hold something")
	require.Equal(t, top.Clusters[0], top.Home)
	require.Equal(t, []topology.Cluster{{Local: true}}, topologytest.BuildLocal(t, near).Clusters)
}

func TestStorage(t *testing.T) {
	kinds := `spec:
  etcd: {external: {endpoints: ["https://etcd:2379"], tlsSecret: creds}}
  cacheServer: {}
  rootShard: {etcd: {managed: {replicas: 3, storage: 20Gi, storageClassName: fast}}}
  shards:
  - {name: alpha}
  - {name: beta, etcd: {embedded: {storage: 1Gi}}}
`
	for name, tc := range map[string]struct {
		text string
		id   topology.ID
		want *topology.Storage
	}{
		"managed":            {kinds, "root-shard", &topology.Storage{Etcd: "etcd/root", Servers: []string{"https://demo-etcd-root.kcp.svc.cluster.local:2379"}}},
		"managed, its etcd":  {kinds, "etcd/root", &topology.Storage{PeerPort: 2380, Size: "20Gi", Class: "fast"}},
		"external":           {kinds, "shard/alpha", &topology.Storage{Servers: []string{"https://etcd:2379"}, TLSSecret: "creds"}},
		"embedded":           {kinds, "shard/beta", &topology.Storage{Embedded: true, ClientPort: 2379, PeerPort: 2380, Size: "1Gi"}},
		"embedded in cache":  {kinds, "cache-server", &topology.Storage{Embedded: true, ClientPort: 2379, PeerPort: 2380, Size: "8Gi", Ephemeral: true}},
		"managed for cache":  {ha, "cache-server", &topology.Storage{Etcd: "etcd/cache", Servers: []string{"https://demo-etcd-cache.kcp.svc.cluster.local:2379"}}},
		"front-proxy: none":  {kinds, "front-proxy/main", nil},
		"no etcd for others": {kinds, "etcd/alpha", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := topologytest.Build(t, tc.text).Component(tc.id)
			if c == nil {
				require.Nil(t, tc.want)
				return
			}
			require.Equal(t, tc.want, c.Storage)
		})
	}
}

func TestVirtualWorkspacesServerIsAttachedToItsShard(t *testing.T) {
	top := topologytest.Build(t, near)
	alpha, extra := top.Component("shard/alpha"), top.Component("virtual-workspaces/extra")
	require.Equal(t, extra.ID(), alpha.VirtualWorkspaces)
	require.Equal(t, alpha.ID(), extra.Serves)
	require.Equal(t, extra.URL, alpha.VirtualWorkspaceURL)

	root := topologytest.Build(t, "spec: {virtualWorkspaces: [{name: one}]}\n").Root()
	require.Equal(t, topology.ID("virtual-workspaces/one"), root.VirtualWorkspaces)
	require.Equal(t, "https://demo-vw-one.kcp.svc.cluster.local:6443", root.VirtualWorkspaceURL)
}

func TestAccess(t *testing.T) {
	top := topologytest.Build(t, near)
	got := map[topology.ID][2]string{}
	for _, c := range top.OfKind(topology.Kubeconfig) {
		got[c.ID()] = [2]string{string(c.Access.Target), c.Access.URL}
	}
	require.Equal(t, map[topology.ID][2]string{
		"kubeconfig/admin": {"front-proxy/main", "https://kcp.example.com:6443"},
		"kubeconfig/ops":   {"shard/beta", "https://beta.example.com"},
		"kubeconfig/boss":  {"root-shard", "https://root.example.com:6443"},
	}, got)
}

func TestComponentsTakeWhatIsSaidForAll(t *testing.T) {
	top := topologytest.Build(t, `spec:
  version: v0.32.3
  image: {repository: mirror/kcp, digest: "sha256:`+strings.Repeat("a", 64)+`", pullSecrets: [pull]}
  defaults: {replicas: 2, logLevel: 4, extraArgs: [--a=1], podTemplate: {metadata: {labels: {all: "1"}}}}
  shards:
  - {name: alpha}
  - {name: beta, image: {tag: v0.31.0}, replicas: 1, extraArgs: [--a=2], podTemplate: {metadata: {labels: {beta: "1"}}}}
  - {name: gamma, image: {tag: nightly, pullSecrets: []}}
`)
	got := columns(&topology.Topology{Components: top.OfKind(topology.Shard)}, func(c *topology.Component) []any {
		return []any{c.Image, c.Version, c.Replicas, *c.LogLevel, c.PullPolicy, c.PullSecrets, c.ExtraArgs, len(c.PodTemplates), len(c.Services)}
	})
	require.Empty(t, cmp.Diff(`shard/alpha: mirror/kcp@sha256:`+strings.Repeat("a", 64)+` v0.32.3 2 4 IfNotPresent [pull] [--a=1] 1 0
shard/beta: mirror/kcp:v0.31.0 v0.31.0 1 4 IfNotPresent [pull] [--a=1 --a=2] 2 0
shard/gamma: mirror/kcp:nightly v0.32.3 2 4 IfNotPresent [] [--a=1] 1 0
`, got))
}

func TestBuildLocalKeepsEverythingOnThisMachine(t *testing.T) {
	top := topologytest.BuildLocal(t, ha)
	require.True(t, top.Local())
	require.Empty(t, top.OfKind(topology.Etcd), "every etcd is embedded")
	seen := map[int32]topology.ID{}
	for _, c := range top.OfKind(topology.CacheServer, topology.RootShard, topology.Shard, topology.FrontProxy) {
		require.Equal(t, "127.0.0.1", c.BindAddress, c.ID())
		require.Equal(t, int32(1), c.Replicas, c.ID())
		require.Equal(t, c.Port, c.ServicePort, c.ID())
		require.Equal(t, "/state/demo/components/"+c.Object()+"/config", c.ConfigDir)
		require.Equal(t, "/state/demo/components/"+c.Object()+"/data", c.DataDir)
		ports := []int32{c.Port}
		if c.Kind != topology.FrontProxy {
			require.True(t, c.Storage.Embedded, c.ID())
			ports = append(ports, c.Storage.ClientPort, c.Storage.PeerPort)
		}
		for _, p := range ports {
			require.Empty(t, seen[p], "port %d of %s", p, c.ID())
			seen[p] = c.ID()
		}
	}
}

func TestPathsAndNames(t *testing.T) {
	root := topologytest.Build(t, ha).Root()
	files := topology.Files{}
	for want, got := range map[string]string{
		"/etc/kcp/pki/server/tls.crt":           root.Path(files.Cert("server")),
		"/etc/kcp/pki/server/tls.key":           root.Path(files.Key("server")),
		"/etc/kcp/ca/client.crt":                root.Path(files.CA(topology.ClientCA)),
		"/etc/kcp/kubeconfig/shards.kubeconfig": root.Path(files.Kubeconfig("shards")),
		"/etc/kcp/service-account/sa.key":       root.Path(files.ServiceAccount("sa.key")),
		"/etc/kcp/etcd/ca.crt":                  root.Path(files.ExternalEtcd("ca.crt")),
		"/etc/kcp/config/path-mapping.yaml":     root.Path(files.Config("path-mapping.yaml")),
		"demo-root-server":                      root.Object("server"),
		"demo-ca":                               topologytest.Build(t, "").Object("ca"),
		"demo":                                  topologytest.Build(t, "").Object(),
		"kcp.example.com:443":                   topology.HostPort("https://kcp.example.com"),
		"[2001:db8::1]:6443":                    topology.HostPort("https://[2001:db8::1]:6443/x"),
		"":                                      topology.HostPort("kcp.example.com"),
		"demo-root.kcp.svc.cluster.local":       root.Host(),
		"root":                                  root.ShardName(),
		"alpha":                                 topologytest.Build(t, ha).Component("shard/alpha").ShardName(),
		"demo-etcd-root-2.demo-etcd-root-peers.kcp.svc.cluster.local": topologytest.Build(t, ha).Component("etcd/root").MemberHost(2),
	} {
		require.Equal(t, want, got)
	}
}

func TestLabelsNameTheComponent(t *testing.T) {
	for _, text := range []string{"", ha, near} {
		for _, c := range topologytest.Build(t, text).Components {
			require.Equal(t, c.ID(), topology.IDFromLabels(c.Labels()))
			require.Equal(t, c.Kind, c.ID().Kind())
			require.Subset(t, c.Labels(), c.Selector())
			require.Equal(t, c.Selector(), topology.SelectorOf(c.Setup, c.ID().Kind(), c.ID().Name()), c.ID())
		}
	}
	require.Equal(t, map[string]string{
		"kcpctl.dev/setup": "demo", "kcpctl.dev/component": "etcd", "kcpctl.dev/name": "root",
		"app.kubernetes.io/name": "etcd", "app.kubernetes.io/instance": "demo", "app.kubernetes.io/component": "etcd",
		"app.kubernetes.io/managed-by": "kcpctl",
	}, topologytest.Build(t, "").Component("etcd/root").Labels())
}

// The ID is what kubectl computes for a parent demo-inventory.kcp.Secret. (pkg/cmd/apply/applyset.go, ApplySet.ID).
func TestApplySet(t *testing.T) {
	top := topologytest.Build(t, near)
	require.Equal(t, "applyset-V8_v0Uf5Vs_RCzv8OD3C9H1woqxJtgmn6np_9xx9RE0-v1", top.ApplySet(top.Clusters[0]))
	require.NotEqual(t, top.ApplySet(top.Clusters[0]), top.ApplySet(top.Clusters[1]), "each namespace has its own")
}

// The region of a cluster is a label of its shards, on clusters and on this machine. A shard's own label takes
// precedence.
func TestRegionsOfShards(t *testing.T) {
	const file = `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us, region: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards:
  - {name: alpha, url: "https://alpha.example.com:6443"}
  - {name: beta, cluster: us, url: "https://beta.example.com:6443"}
  - {name: gamma, cluster: us, url: "https://gamma.example.com:6443", labels: {tier: gold}}
  - {name: delta, cluster: us, url: "https://delta.example.com:6443", labels: {region: us-east}}
`
	for _, top := range []*topology.Topology{topologytest.Build(t, file), topologytest.BuildLocal(t, file)} {
		got := map[string]map[string]string{}
		for _, c := range top.Shards() {
			got[c.ShardName()] = c.ShardLabels
		}
		require.Equal(t, map[string]map[string]string{
			"root": nil, "alpha": nil, "beta": {"region": "us"}, "gamma": {"region": "us", "tier": "gold"}, "delta": {"region": "us-east"},
		}, got)
		require.Equal(t, map[string]string{"tier": "gold"}, top.Setup.Spec.Shards[2].Labels, "the setup is not changed")
	}
}

func TestPlural(t *testing.T) {
	for kind, want := range map[topology.Kind]string{
		topology.Shard: "shards", topology.Etcd: "etcds", topology.FrontProxy: "front-proxies",
		topology.VirtualWorkspaces: "virtual-workspaces", topology.Kubeconfig: "kubeconfigs",
	} {
		require.Equal(t, want, kind.Plural())
	}
}

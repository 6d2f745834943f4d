package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

var files topology.Files

// flag is one argument of a process.
type flag struct{ name, value string }

// replaceFlags replaces flags with the extra arguments that have the same name, and appends the other extra arguments.
// If two extra arguments have the same name, the last one wins: the component's own come after the setup's defaults.
func replaceFlags(fl []flag, extra []string) []string {
	last := map[string]string{}
	var order []string
	for _, e := range extra {
		name := flagName(e)
		if _, ok := last[name]; !ok {
			order = append(order, name)
		}
		last[name] = e
	}
	var out []string
	placed := map[string]bool{}
	for _, f := range fl {
		e, replaced := last[f.name]
		switch {
		case !replaced:
			out = append(out, "--"+f.name+"="+f.value)
		case !placed[f.name]:
			placed[f.name] = true
			out = append(out, e)
		}
	}
	for _, name := range order {
		if !placed[name] {
			out = append(out, last[name])
		}
	}
	return out
}

func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

// serving returns the flags for the port of a kcp server.
func serving(c *topology.Component) []flag {
	return []flag{
		{"bind-address", c.BindAddress},
		{"secure-port", fmt.Sprint(c.Port)},
		{"tls-cert-file", c.Path(files.Cert(topology.CertServer))},
		{"tls-private-key-file", c.Path(files.Key(topology.CertServer))},
	}
}

// requestHeader returns the flags with which a server accepts the identities that proxies pass on.
func requestHeader(c *topology.Component, names ...string) []flag {
	return []flag{
		{"requestheader-client-ca-file", c.Path(files.CA(topology.RequestHeaderCA))},
		// Without names, kcp >= 0.31 refuses a bundle that overlaps with the bundle of the client CA (kcp#4032).
		{"requestheader-allowed-names", strings.Join(names, ",")},
		{"requestheader-username-headers", "X-Remote-User"},
		{"requestheader-group-headers", "X-Remote-Group"},
		{"requestheader-extra-headers-prefix", "X-Remote-Extra-"},
	}
}

// storage returns the flags for the etcd of a kcp server.
func storage(i pki.Installation, c *topology.Component) []flag {
	s := c.Storage
	if s.Embedded {
		return []flag{
			{"embedded-etcd-directory", c.DataDir + "/etcd"},
			{"embedded-etcd-client-port", fmt.Sprint(s.ClientPort)},
			{"embedded-etcd-peer-port", fmt.Sprint(s.PeerPort)},
		}
	}
	fl := []flag{{"etcd-servers", strings.Join(s.Servers, ",")}}
	if prefix := etcdPrefix(i, c); prefix != "" {
		fl = append(fl, flag{"etcd-prefix", prefix})
	}
	switch {
	case s.Etcd != "":
		fl = append(fl,
			flag{"etcd-cafile", c.Path(files.CA(topology.EtcdCA))},
			flag{"etcd-certfile", c.Path(files.Cert(topology.CertEtcdClient))},
			flag{"etcd-keyfile", c.Path(files.Key(topology.CertEtcdClient))})
	case s.TLSSecret != "":
		fl = append(fl,
			flag{"etcd-cafile", c.Path(files.ExternalEtcd("ca.crt"))},
			flag{"etcd-certfile", c.Path(files.ExternalEtcd("tls.crt"))},
			flag{"etcd-keyfile", c.Path(files.ExternalEtcd("tls.key"))})
	}
	return fl
}

// etcdPrefix returns the prefix of a kcp server's keys in an etcd that it may share: the one in the setup file, or a
// default that no other installation has. A cache server does not support a prefix.
func etcdPrefix(i pki.Installation, c *topology.Component) string {
	if c.Storage.Prefix == "" && c.Storage.Etcd == "" && c.IsShard() {
		return i.EtcdPrefix + "/" + c.ShardName()
	}
	return c.Storage.Prefix
}

// shardFlags returns the flags of kcp start (kcp: pkg/server/options).
func shardFlags(t *topology.Topology, s *pki.State, c *topology.Component) []flag {
	r := release.Of(c.Version)
	fl := serving(c)
	fl = append(fl, []flag{
		{"root-ca-file", c.Path(files.CA(topology.ServerCA))},
		{"client-ca-file", c.Path(files.CA(topology.ClientCA))},
	}...)
	fl = append(fl, requestHeader(c, pki.CNFrontProxy)...)
	fl = append(fl, tokenFlags(c)...)
	fl = append(fl, []flag{
		{"service-account-key-file", c.Path(files.ServiceAccount(serviceAccountPublic))},
		{"service-account-private-key-file", c.Path(files.ServiceAccount(serviceAccountKey))},
		{"service-account-lookup", "false"},
		{"shard-name", c.ShardName()},
		{"shard-base-url", c.URL},
		{"shard-external-url", c.ExternalURL},
		{"shard-virtual-workspace-url", c.VirtualWorkspaceURL},
		{"shard-virtual-workspace-ca-file", c.Path(files.CA(topology.ServerCA))},
		{"shard-client-cert-file", c.Path(files.Cert(topology.CertClient))},
		{"shard-client-key-file", c.Path(files.Key(topology.CertClient))},
		{"logical-cluster-admin-kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigLogicalClusterAdmin))},
		externalLogicalClusterAdmin(c),
	}...)
	if r.ExternalHostname {
		fl = append(fl, flag{"external-hostname", hostname(c.ExternalURL)})
	}
	if r.OwnShards && len(c.ShardLabels) > 0 {
		fl = append(fl, flag{"shard-labels", labels.Set(c.ShardLabels).String()})
	}
	if c.Kind == topology.Shard {
		fl = append(fl, flag{"root-shard-kubeconfig-file", c.Path(files.Kubeconfig(topology.KubeconfigRootShard))})
	}
	if t.Cache() != nil {
		fl = append(fl, flag{"cache-kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigCache))})
	} else if c.Kind == topology.Shard {
		// The cache that is embedded in the root shard.
		fl = append(fl, flag{"cache-kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigRootShard))})
	}
	if c.Mounts() {
		fl = append(fl,
			flag{"mount-proxy-client-cert-file", c.Path(files.Cert(topology.CertMountsProxy))},
			flag{"mount-proxy-client-key-file", c.Path(files.Key(topology.CertMountsProxy))})
	}
	if c.VirtualWorkspaces != "" {
		fl = append(fl, flag{"run-virtual-workspaces", "false"})
	}
	fl = append(fl, workspaceFlags(t)...)
	fl = append(fl, []flag{
		{"root-directory", ""}, // no files, no admin token
		{"enable-leader-election", fmt.Sprint(!c.Storage.Embedded)},
		// Without it, a process that terminates waits for the watches of its clients until it is killed.
		{"shutdown-watch-termination-grace-period", fmt.Sprintf("%ds", watchSeconds)},
	}...)
	return slices.Concat(fl, authorizationFlags(c), auditFlags(c), gates(c), storage(s.Installation, c),
		encryptionFlags(t, s, c), logging(c))
}

// gates returns the flag for the feature gates that the release of a component knows: with others it exits at once.
func gates(c *topology.Component) []flag {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		if release.HasGate(c.Version, name) {
			all = append(all, fmt.Sprintf("%s=%t", name, c.FeatureGates[name]))
		}
	}
	if len(all) == 0 || c.Kind == topology.FrontProxy && !release.Of(c.Version).FrontProxyGates {
		return nil
	}
	return []flag{{"feature-gates", strings.Join(all, ",")}}
}

// cacheServerFlags returns the flags of cache-server (kcp: pkg/cache/server/options).
func cacheServerFlags(i pki.Installation, c *topology.Component) []flag {
	fl := serving(c)
	if release.Of(c.Version).CacheClientCA {
		fl = append(fl, flag{"client-ca-file", c.Path(files.CA(topology.ClientCA))})
	}
	fl = append(fl, flag{"root-directory", ""})
	if c.Monitored {
		// It has no RBAC: otherwise, only the group system:masters could read metrics, which may do everything. The
		// other paths are the default.
		fl = append(fl, flag{"authorization-always-allow-paths", "/healthz,/readyz,/livez,/metrics"})
	}
	return append(append(fl, storage(i, c)...), logging(c)...)
}

// frontProxyFlags returns the flags of kcp-front-proxy (kcp: pkg/proxy/options).
func frontProxyFlags(t *topology.Topology, c *topology.Component) []flag {
	fl := append(serving(c), frontProxyAuthentication(t, c)...)
	fl = append(fl, []flag{
		{"root-kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigShards))},
		{"shards-kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigShards))},
		{"mapping-file", c.Path(files.Config(pathMappingFile))},
		{"root-directory", c.DataDir},
	}...)
	if c.Serving != nil && !c.Serving.Edge {
		fl = append(fl, flag{"tls-sni-cert-key", fmt.Sprintf("%s,%s:%s",
			c.Path(files.External("tls.crt")), c.Path(files.External("tls.key")), hostname(c.ExternalURL))})
	}
	if c.Mounts() {
		fl = append(fl, requestHeader(c, pki.CNFrontProxy, pki.CNMountsProxy)...)
	}
	return slices.Concat(fl, gates(c), logging(c))
}

// virtualWorkspacesFlags returns the flags of virtual-workspaces (kcp: cmd/virtual-workspaces/options).
func virtualWorkspacesFlags(t *topology.Topology, c *topology.Component) []flag {
	r := release.Of(c.Version)
	fl := serving(c)
	fl = append(fl, []flag{
		{"client-ca-file", c.Path(files.CA(topology.ClientCA))},
		{"kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigShard))},
		// TokenReviews go to the shard too.
		{"authentication-kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigShard))},
		{"authentication-skip-lookup", "true"},
	}...)
	fl = append(fl, requestHeader(c, pki.CNFrontProxy)...)
	if r.VWShardExternalURL {
		fl = append(fl, flag{"shard-external-url", c.ExternalURL})
	}
	if r.VWExternalAdmin && usesKubeconfig(t, c, topology.KubeconfigExternalLogicalClusterAdmin) {
		fl = append(fl, externalLogicalClusterAdmin(c))
	}
	if usesKubeconfig(t, c, topology.KubeconfigCache) {
		fl = append(fl, flag{"cache-kubeconfig", c.Path(files.Kubeconfig(topology.KubeconfigCache))})
	}
	return slices.Concat(fl, auditFlags(c), logging(c))
}

func usesKubeconfig(t *topology.Topology, c *topology.Component, name string) bool {
	return slices.ContainsFunc(t.EdgesFrom(c), func(e topology.Edge) bool { return e.Kubeconfig == name })
}

func externalLogicalClusterAdmin(c *topology.Component) flag {
	return flag{
		"external-logical-cluster-admin-kubeconfig",
		c.Path(files.Kubeconfig(topology.KubeconfigExternalLogicalClusterAdmin)),
	}
}

// etcdFlags returns the flags of a member of a managed etcd. The kubelet replaces $(POD_NAME).
func etcdFlags(c *topology.Component) []flag {
	listens := func(port int32) string { return fmt.Sprintf("https://%s:%d", c.BindAddress, port) }
	self := strings.Replace(c.MemberHost(0), c.Object()+"-0", "$(POD_NAME)", 1)
	ca := c.Path(files.CA(topology.EtcdCA))
	return slices.Concat([]flag{
		{"name", "$(POD_NAME)"},
		{"data-dir", c.DataDir + "/etcd"},
		{"listen-client-urls", listens(c.Port)},
		{"advertise-client-urls", fmt.Sprintf("https://%s:%d", self, c.Port)},
		{"listen-peer-urls", listens(c.Storage.PeerPort)},
		{"initial-advertise-peer-urls", fmt.Sprintf("https://%s:%d", self, c.Storage.PeerPort)},
		{"initial-cluster-token", c.Object()},
		{"client-cert-auth", "true"},
		// All etcds of a setup trust one authority. Without these flags, each would accept the clients and the peers of
		// all.
		{"client-cert-allowed-hostname", c.ClientHost()},
		{"peer-cert-allowed-hostname", c.MemberHost(0)},
		// The gateway dials its own server with the serving certificate, which is then verified like the certificate of
		// a client: it does not work with allowed hostnames (etcd: server/embed/etcd.go, grpcGatewayDial).
		{"enable-grpc-gateway", "false"},
		{"trusted-ca-file", ca},
		{"cert-file", c.Path(files.Cert(topology.CertServer))},
		{"key-file", c.Path(files.Key(topology.CertServer))},
		{"peer-client-cert-auth", "true"},
		{"peer-trusted-ca-file", ca},
		{"peer-cert-file", c.Path(files.Cert(topology.CertPeer))},
		{"peer-key-file", c.Path(files.Key(topology.CertPeer))},
	}, etcdMetrics(c), etcdLimits(c.Storage))
}

// etcdMetrics returns the flag for metrics. At the port for clients, only a certificate that may do everything can read
// them, and a port for metrics with TLS requires the same certificates.
func etcdMetrics(c *topology.Component) []flag {
	if !c.Monitored {
		return nil
	}
	return []flag{{"listen-metrics-urls", fmt.Sprintf("http://%s:%d", c.BindAddress, c.MetricsPort())}}
}

// etcdLimits returns the flags for how large the data may become, and how long earlier revisions are kept.
func etcdLimits(s *topology.Storage) []flag {
	var fl []flag
	if s.Quota > 0 {
		fl = append(fl, flag{"quota-backend-bytes", fmt.Sprint(s.Quota)})
	}
	if s.AutoCompaction > 0 {
		fl = append(fl, flag{"auto-compaction-mode", "periodic"},
			flag{"auto-compaction-retention", s.AutoCompaction.String()})
	}
	return fl
}

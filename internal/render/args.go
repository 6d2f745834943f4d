package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/kubeconfig"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/topology"
)

var files topology.Files

// A flag is one argument of a process.
type flag struct{ name, value string }

// command is what a component's container runs.
func command(c *topology.Component) []string {
	switch c.Kind {
	case topology.Etcd:
		return []string{"etcd"}
	case topology.CacheServer:
		return []string{"/cache-server"}
	case topology.FrontProxy:
		return []string{"/kcp-front-proxy"}
	case topology.VirtualWorkspaces:
		return []string{"/virtual-workspaces"}
	}
	return []string{"/kcp", "start"}
}

// args are the arguments of a component's process, with the setup's extraArgs in place of those of the same name.
func args(t *topology.Topology, i pki.Installation, c *topology.Component) []string {
	var fl []flag
	switch c.Kind {
	case topology.Etcd:
		fl = etcdFlags(c)
	case topology.CacheServer:
		fl = cacheServerFlags(i, c)
	case topology.FrontProxy:
		fl = frontProxyFlags(c)
	case topology.VirtualWorkspaces:
		fl = virtualWorkspacesFlags(t, c)
	default:
		fl = shardFlags(t, i, c)
	}
	return replaceFlags(fl, c.ExtraArgs)
}

// replaceFlags puts extra arguments in the place of the flags that they name, and the others at the end. Of two extra
// arguments with one name the later wins, as a component's own come after the setup's defaults.
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

// serving are the flags of every kcp server's own port.
func serving(c *topology.Component) []flag {
	return []flag{
		{"bind-address", c.BindAddress},
		{"secure-port", fmt.Sprint(c.Port)},
		{"tls-cert-file", c.Path(files.Cert(pki.CertServer))},
		{"tls-private-key-file", c.Path(files.Key(pki.CertServer))},
	}
}

// requestHeader are the flags with which a server accepts identities that proxies pass on.
func requestHeader(c *topology.Component, names ...string) []flag {
	return []flag{
		{"requestheader-client-ca-file", c.Path(files.CA(string(pki.RequestHeaderCA)))},
		// Without names kcp >= 0.31 refuses CA bundles that overlap with the client CA's (kcp#4032).
		{"requestheader-allowed-names", strings.Join(names, ",")},
		{"requestheader-username-headers", "X-Remote-User"},
		{"requestheader-group-headers", "X-Remote-Group"},
		{"requestheader-extra-headers-prefix", "X-Remote-Extra-"},
	}
}

func logging(c *topology.Component) []flag { return []flag{{"v", fmt.Sprint(c.LogLevel)}} }

// storage are the flags of a kcp server's etcd.
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
			flag{"etcd-cafile", c.Path(files.CA(string(pki.EtcdCA)))},
			flag{"etcd-certfile", c.Path(files.Cert(pki.CertEtcdClient))},
			flag{"etcd-keyfile", c.Path(files.Key(pki.CertEtcdClient))})
	case s.TLSSecret != "":
		fl = append(fl,
			flag{"etcd-cafile", c.Path(files.ExternalEtcd("ca.crt"))},
			flag{"etcd-certfile", c.Path(files.ExternalEtcd("tls.crt"))},
			flag{"etcd-keyfile", c.Path(files.ExternalEtcd("tls.key"))})
	}
	return fl
}

// etcdPrefix is what a kcp server puts before its keys in an etcd that it may share: the setup's word, or a default that no
// other installation has. A cache server knows no prefix.
func etcdPrefix(i pki.Installation, c *topology.Component) string {
	if c.Storage.Prefix == "" && c.Storage.Etcd == "" && c.IsShard() {
		return i.EtcdPrefix + "/" + c.ShardName()
	}
	return c.Storage.Prefix
}

// shardFlags are those of kcp start (kcp: pkg/server/options).
func shardFlags(t *topology.Topology, i pki.Installation, c *topology.Component) []flag {
	r := release.Of(c.Version)
	fl := serving(c)
	fl = append(fl, []flag{
		{"root-ca-file", c.Path(files.CA(string(pki.ServerCA)))},
		{"client-ca-file", c.Path(files.CA(string(pki.ClientCA)))},
	}...)
	fl = append(fl, requestHeader(c, pki.CNFrontProxy)...)
	fl = append(fl, []flag{
		{"service-account-key-file", c.Path(files.ServiceAccount(serviceAccountPublic))},
		{"service-account-private-key-file", c.Path(files.ServiceAccount(serviceAccountKey))},
		{"service-account-lookup", "false"},
		{"shard-name", c.ShardName()},
		{"shard-base-url", c.URL},
		{"shard-external-url", c.ExternalURL},
		{"shard-virtual-workspace-url", c.VirtualWorkspaceURL},
		{"shard-virtual-workspace-ca-file", c.Path(files.CA(string(pki.ServerCA)))},
		{"shard-client-cert-file", c.Path(files.Cert(pki.CertClient))},
		{"shard-client-key-file", c.Path(files.Key(pki.CertClient))},
		{"logical-cluster-admin-kubeconfig", c.Path(files.Kubeconfig(pki.CertLogicalClusterAdmin))},
		{"external-logical-cluster-admin-kubeconfig", c.Path(files.Kubeconfig(pki.CertExternalLogicalClusterAdmin))},
	}...)
	if r.ExternalHostname {
		fl = append(fl, flag{"external-hostname", hostname(c.ExternalURL)})
	}
	if c.Kind == topology.Shard {
		fl = append(fl, flag{"root-shard-kubeconfig-file", c.Path(files.Kubeconfig(kubeconfig.RootShard))})
	}
	if t.Cache() != nil {
		fl = append(fl, flag{"cache-kubeconfig", c.Path(files.Kubeconfig(kubeconfig.Cache))})
	} else if c.Kind == topology.Shard {
		// The root shard's embedded cache.
		fl = append(fl, flag{"cache-kubeconfig", c.Path(files.Kubeconfig(kubeconfig.RootShard))})
	}
	if r.MountProxy {
		fl = append(fl,
			flag{"mount-proxy-client-cert-file", c.Path(files.Cert(pki.CertMountsProxy))},
			flag{"mount-proxy-client-key-file", c.Path(files.Key(pki.CertMountsProxy))})
	}
	if c.VirtualWorkspaces != "" {
		fl = append(fl, flag{"run-virtual-workspaces", "false"})
	}
	fl = append(fl, []flag{
		{"batteries-included", "workspace-types"}, // the only one that writes no files
		{"root-directory", ""},                    // no files, no admin token
		{"enable-leader-election", fmt.Sprint(!c.Storage.Embedded)},
		// Without it a process that is told to end waits for its clients' watches until it is killed.
		{"shutdown-watch-termination-grace-period", fmt.Sprintf("%ds", watchSeconds)},
	}...)
	return append(append(fl, storage(i, c)...), logging(c)...)
}

// cacheServerFlags are those of cache-server (kcp: pkg/cache/server/options).
func cacheServerFlags(i pki.Installation, c *topology.Component) []flag {
	fl := serving(c)
	if release.Of(c.Version).CacheClientCA {
		fl = append(fl, flag{"client-ca-file", c.Path(files.CA(string(pki.ClientCA)))})
	}
	fl = append(fl, flag{"root-directory", ""})
	return append(append(fl, storage(i, c)...), logging(c)...)
}

// frontProxyFlags are those of kcp-front-proxy (kcp: pkg/proxy/options).
func frontProxyFlags(c *topology.Component) []flag {
	fl := serving(c)
	fl = append(fl, []flag{
		{"client-ca-file", c.Path(files.CA(string(pki.ClientCA)))},
		{"root-kubeconfig", c.Path(files.Kubeconfig(kubeconfig.Shards))},
		{"shards-kubeconfig", c.Path(files.Kubeconfig(kubeconfig.Shards))},
		{"mapping-file", c.Path(files.Config(pathMappingFile))},
		{"root-directory", c.DataDir},
	}...)
	if release.Of(c.Version).MountProxy {
		fl = append(fl, requestHeader(c, pki.CNFrontProxy, pki.CNMountsProxy)...)
	}
	return append(fl, logging(c)...)
}

// virtualWorkspacesFlags are those of virtual-workspaces (kcp: cmd/virtual-workspaces/options).
func virtualWorkspacesFlags(t *topology.Topology, c *topology.Component) []flag {
	r := release.Of(c.Version)
	fl := serving(c)
	fl = append(fl, []flag{
		{"client-ca-file", c.Path(files.CA(string(pki.ClientCA)))},
		{"kubeconfig", c.Path(files.Kubeconfig(kubeconfig.Shard))},
		// TokenReviews go to the shard too.
		{"authentication-kubeconfig", c.Path(files.Kubeconfig(kubeconfig.Shard))},
		{"authentication-skip-lookup", "true"},
	}...)
	fl = append(fl, requestHeader(c, pki.CNFrontProxy)...)
	if r.VWShardExternalURL {
		fl = append(fl, flag{"shard-external-url", c.ExternalURL})
	}
	if r.VWExternalAdmin {
		fl = append(fl, flag{"external-logical-cluster-admin-kubeconfig", c.Path(files.Kubeconfig(pki.CertExternalLogicalClusterAdmin))})
	}
	if t.Cache() != nil {
		fl = append(fl, flag{"cache-kubeconfig", c.Path(files.Kubeconfig(kubeconfig.Cache))})
	}
	return append(fl, logging(c)...)
}

// etcdFlags are those of a managed etcd's member; $(POD_NAME) is filled in by the kubelet.
func etcdFlags(c *topology.Component) []flag {
	listens := func(port int32) string { return fmt.Sprintf("https://%s:%d", c.BindAddress, port) }
	self := strings.Replace(c.MemberHost(0), c.Object()+"-0", "$(POD_NAME)", 1)
	ca := c.Path(files.CA(string(pki.EtcdCA)))
	return slices.Concat([]flag{
		{"name", "$(POD_NAME)"},
		{"data-dir", c.DataDir + "/etcd"},
		{"listen-client-urls", listens(c.Port)},
		{"advertise-client-urls", fmt.Sprintf("https://%s:%d", self, c.Port)},
		{"listen-peer-urls", listens(c.Storage.PeerPort)},
		{"initial-advertise-peer-urls", fmt.Sprintf("https://%s:%d", self, c.Storage.PeerPort)},
		{"initial-cluster-token", c.Object()},
		{"client-cert-auth", "true"},
		// All etcds of a setup trust one authority: without these each would serve the clients, and join the peers, of all.
		{"client-cert-allowed-hostname", c.ClientHost()},
		{"peer-cert-allowed-hostname", c.MemberHost(0)},
		// The gateway dials its own server and verifies its certificate as if that were a client's: it cannot work with
		// allowed hostnames (etcd: server/embed/etcd.go, grpcGatewayDial).
		{"enable-grpc-gateway", "false"},
		{"trusted-ca-file", ca},
		{"cert-file", c.Path(files.Cert(pki.CertServer))},
		{"key-file", c.Path(files.Key(pki.CertServer))},
		{"peer-client-cert-auth", "true"},
		{"peer-trusted-ca-file", ca},
		{"peer-cert-file", c.Path(files.Cert(pki.CertPeer))},
		{"peer-key-file", c.Path(files.Key(pki.CertPeer))},
	})
}

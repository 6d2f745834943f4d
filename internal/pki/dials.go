package pki

import (
	"net/url"

	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// dial says that each of some clients connects to each of some servers: one connection, or a mesh.
type dial struct {
	clients []presented
	servers []served
	// trust is the bundle with which the clients verify the servers, accept the one with which the servers verify the
	// clients.
	trust, accept CA
	// allowed is a host that the servers look for in the clients' certificates besides. Empty: they look for none.
	allowed string
}

// presented is a certificate that a component shows when it dials. One without a name is minted for each use.
type presented struct {
	component topology.ID
	cert      LeafKey
}

// served is a URL and the certificate that is served there. Without a URL it is dialled as host.
type served struct {
	component topology.ID
	cert      LeafKey
	url, host string
}

// dials lists who connects to whom in a setup.
func dials(t *topology.Topology) []dial {
	var all []dial
	for _, etcd := range t.OfKind(topology.Etcd) {
		all = append(all, etcdDials(etcd)...)
	}
	all = append(all, shardDials(t)...)
	for _, c := range t.OfKind(topology.CacheServer, topology.RootShard, topology.Shard, topology.VirtualWorkspaces, topology.FrontProxy) {
		all = append(all, singleDials(t, c)...)
	}
	for _, c := range t.OfKind(topology.Kubeconfig) {
		all = append(all, kcpDial(c, "", at(t.Component(c.Access.Target), c.Access.URL)))
	}
	return append(all, ownDials(t)...)
}

// etcdDials are those of a managed etcd: peers dial each other with one certificate for both ends, and probes each member with
// its own.
func etcdDials(etcd *topology.Component) []dial {
	peer := dial{clients: []presented{leafOf(etcd, CertPeer)}, trust: EtcdCA, accept: EtcdCA, allowed: etcd.MemberHost(0)}
	for _, h := range memberHosts(etcd) {
		peer.servers = append(peer.servers, served{component: etcd.ID(), cert: leafOf(etcd, CertPeer).cert, host: h})
	}
	probes := served{component: etcd.ID(), cert: leafOf(etcd, CertServer).cert, host: "localhost"}
	return []dial{peer, etcdDial(etcd, leafOf(etcd, CertServer), at(etcd, etcd.URL), probes)}
}

// etcdDial is a connection to the client port of a managed etcd.
func etcdDial(etcd *topology.Component, client presented, servers ...served) dial {
	return dial{
		clients: []presented{client}, servers: servers, trust: EtcdCA, accept: EtcdCA, allowed: etcd.ClientHost(),
	}
}

// shardDials are the meshes: shards reach into each other's logical clusters and virtual workspaces, front-proxies pass
// requests on to all shards, and shards pass those for mounted workspaces back to the front-proxies.
func shardDials(t *topology.Topology) []dial {
	var servers, vws, proxies []served
	for _, s := range t.Shards() {
		servers = append(servers, at(s, s.URL))
		host := s
		if s.VirtualWorkspaces != "" {
			host = t.Component(s.VirtualWorkspaces)
		}
		vws = append(vws, at(host, s.VirtualWorkspaceURL))
	}
	for _, p := range t.OfKind(topology.FrontProxy) {
		proxies = append(proxies, at(p, p.ExternalURL))
	}
	return []dial{
		mesh(t.Shards(), CertLogicalClusterAdmin, ClientCA, servers),
		mesh(t.Shards(), CertClient, ClientCA, vws),
		mesh(t.OfKind(topology.FrontProxy), CertShardClient, ClientCA, servers),
		mesh(t.OfKind(topology.FrontProxy), CertRequestHeader, RequestHeaderCA, servers),
		mesh(withMounts(t.Shards()), CertMountsProxy, RequestHeaderCA, proxies),
	}
}

// singleDials are those of a component to the few others that it knows by a URL of its own.
func singleDials(t *topology.Topology, c *topology.Component) []dial {
	var all []dial
	if managedEtcd(c) {
		etcd := t.Component(c.Storage.Etcd)
		for _, u := range c.Storage.Servers {
			all = append(all, etcdDial(etcd, leafOf(c, CertEtcdClient), at(etcd, u)))
		}
	}
	root, cache := t.Root(), t.Cache()
	if cache != nil && (c.IsShard() || c.Kind == topology.VirtualWorkspaces) {
		all = append(all, kcpDial(c, CertClient, at(cache, cache.URLFrom(c.Cluster))))
	}
	switch c.Kind {
	case topology.RootShard:
		all = append(all, kcpDial(c, CertExternalLogicalClusterAdmin, at(t.Component(c.FrontProxy), c.FrontProxyURL)))
	case topology.Shard:
		all = append(all,
			kcpDial(c, CertClient, at(root, root.URLFrom(c.Cluster))),
			kcpDial(c, CertExternalLogicalClusterAdmin, at(t.Component(c.FrontProxy), c.FrontProxyURL)))
	case topology.FrontProxy:
		all = append(all, kcpDial(c, CertShardClient, at(root, root.URLFrom(c.Cluster))))
	case topology.VirtualWorkspaces:
		shard := t.Component(c.Serves)
		all = append(all,
			kcpDial(c, CertClient, at(shard, shard.URLFrom(c.Cluster))),
			kcpDial(c, CertFrontProxyClient, at(t.Component(c.FrontProxy), c.FrontProxyURL)))
	}
	return all
}

// ownDials are those of kcpctl itself, through a port-forward: it asks for the name of the Service.
func ownDials(t *topology.Topology) []dial {
	own := dial{clients: []presented{{component: CNSelf}}, trust: ServerCA, accept: ClientCA}
	for _, c := range t.OfKind(topology.CacheServer, topology.RootShard, topology.Shard, topology.FrontProxy, topology.VirtualWorkspaces) {
		s := at(c, c.URL)
		if !t.Local {
			s.url, s.host = "", c.Host()
		}
		own.servers = append(own.servers, s)
	}
	all := []dial{own}
	for _, etcd := range t.OfKind(topology.Etcd) {
		s := at(etcd, etcd.URL)
		s.url = ""
		all = append(all, etcdDial(etcd, presented{component: CNSelf}, s))
	}
	return all
}

// kcpDial is a connection of c with a certificate of its own to a kcp server.
func kcpDial(c *topology.Component, cert string, to served) dial {
	return dial{clients: []presented{leafOf(c, cert)}, servers: []served{to}, trust: ServerCA, accept: ClientCA}
}

func mesh(clients []*topology.Component, cert string, accept CA, servers []served) dial {
	d := dial{servers: servers, trust: ServerCA, accept: accept}
	for _, c := range clients {
		d.clients = append(d.clients, leafOf(c, cert))
	}
	return d
}

func withMounts(shards []*topology.Component) []*topology.Component {
	var out []*topology.Component
	for _, s := range shards {
		if release.Of(s.Version).MountProxy {
			out = append(out, s)
		}
	}
	return out
}

// leafOf is a certificate of a component; that of a kubeconfig has no name.
func leafOf(c *topology.Component, cert string) presented {
	secret := c.Object()
	if cert != "" {
		secret = c.Object(cert)
	}
	return presented{component: c.ID(), cert: LeafKey{Cluster: c.Cluster.Name, Secret: secret}}
}

// at is the serving certificate of a component, dialled at a URL.
func at(c *topology.Component, rawURL string) served {
	s := served{component: c.ID(), cert: leafOf(c, CertServer).cert, url: rawURL}
	if u, err := url.Parse(rawURL); err == nil {
		s.host = u.Hostname()
	}
	return s
}

// String is what users see of a server: its URL, or the name it is asked for.
func (s served) String() string {
	if s.url != "" {
		return s.url
	}
	return s.host
}

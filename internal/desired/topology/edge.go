package topology

import (
	"cmp"
	"slices"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// CA is a trust domain, with its own self-signed certificate authority.
type CA string

// The certificate authorities, as kubeadm separates them.
const (
	ServerCA        CA = "server"        // serving certificates of all kcp servers
	ClientCA        CA = "client"        // clients of kcp servers, users and components alike
	RequestHeaderCA CA = "requestheader" // proxies that pass on the identity of a user in headers
	EtcdCA          CA = "etcd"          // servers, peers and clients of managed etcds
)

// CAs are the certificate authorities of every setup.
var CAs = []CA{ServerCA, ClientCA, RequestHeaderCA, EtcdCA}

// Names of certificates within their component: the directory in Files, and the last part of the Secret's name.
const (
	CertServer                      = "server"
	CertPeer                        = "peer"
	CertClient                      = "client"
	CertEtcdClient                  = "etcd-client"
	CertLogicalClusterAdmin         = "logical-cluster-admin"
	CertExternalLogicalClusterAdmin = "external-logical-cluster-admin"
	CertMountsProxy                 = "mounts-proxy"
	CertShardClient                 = "shard-client"
	CertRequestHeader               = "requestheader"
	CertFrontProxyClient            = "front-proxy-client"
)

// Names of the kubeconfigs of components (see Files).
const (
	KubeconfigRootShard                   = "root-shard"
	KubeconfigCache                       = "cache"
	KubeconfigShards                      = "shards"
	KubeconfigShard                       = "shard"
	KubeconfigLogicalClusterAdmin         = "logical-cluster-admin"
	KubeconfigExternalLogicalClusterAdmin = "external-logical-cluster-admin"
	// KubeconfigKcp is for the workspace of an agent's APIExport, KubeconfigService for the workspace or the cluster
	// whose APIs it publishes.
	KubeconfigKcp     = "kcp"
	KubeconfigService = "service"
	// KubeconfigPhysical is for the physical cluster of a syncer that runs on this machine.
	KubeconfigPhysical = "physical"
	// kubeconfigUser is the kubeconfig of a component of kind Kubeconfig.
	kubeconfigUser = "kubeconfig"
)

// Flags with bundles.
const (
	FlagPeerCA = "peer-trusted-ca-file"
	// FlagPathMapping is the flag of a file with bundles.
	FlagPathMapping = "mapping-file"
)

// Contexts of the kubeconfigs of components.
const (
	// ContextBase is a server without a path.
	ContextBase = "base"
	// ContextShardBase is a shard without a path. kcp reads no other context of --root-shard-kubeconfig-file (kcp:
	// pkg/server/config.go).
	ContextShardBase = "shard-base"
	// ContextSystemAdmin is the logical cluster of a shard itself.
	ContextSystemAdmin = "system:admin"
	contextCache       = "cache"
	// ContextWorkspace is a workspace.
	ContextWorkspace = "workspace"
)

// Self stands for kcpctl where it dials components itself.
const Self ID = ManagedBy

// Edge is a connection of a setup, or many that differ only in who dials whom: each of Clients dials each of Servers.
// All connections among a thousand shards are one Edge.
type Edge struct {
	Clients []ID
	// Cert is the name of the certificate that each client presents. It is empty for Self, which has a new one issued
	// each time.
	Cert    string
	Servers []Endpoint
	// Trust is the authority whose bundle verifies the servers, Accept the one whose bundle verifies the clients.
	Trust, Accept CA
	// AllowedHost is a host name that the servers require in the certificates of clients. Empty: they require none.
	AllowedHost string
	// Kubeconfig is the kubeconfig with which the clients dial, and Context its context. Both are empty if they dial
	// without one.
	Kubeconfig, Context string
	// With is the kubeconfig with which the clients dial: Kubeconfig, or the one of another connection, in which they
	// replace the URL. It has one bundle, which verifies the servers of all its connections.
	With string
	// BundleFlag is the flag with the bundle, of clients that dial without a kubeconfig. It is empty if the bundle has
	// no flag.
	BundleFlag string
	// PathMapping is set if the clients dial the backend of a path mapping.
	PathMapping bool
	// Label describes in one word what the clients do. It is empty for connections that are not drawn.
	Label string
	// What names the purpose of the connection: "requests of clients". It is empty where clients dial only on their own
	// cluster. Optional is set if only a feature needs the connection that an installation need not use.
	What     string
	Optional bool
	// Unverified is set if the clients accept every certificate of the servers.
	Unverified bool
}

// Endpoint is an address of a component.
type Endpoint struct {
	Component ID
	// Cert is the name of the certificate that is served there.
	Cert string
	// URL is empty where no URL leads there. Host is the name that clients expect in the certificate.
	URL, Host string
	// Serving is the user's own certificate that is served there, instead of Cert.
	Serving *v1alpha1.Serving
}

// String returns the URL, or the host if there is none.
func (e Endpoint) String() string { return cmp.Or(e.URL, e.Host) }

// URLFor returns the URL of ServerFor.
func (e Edge) URLFor(client ID) string { return e.ServerFor(client).URL }

// ServerFor returns the server in the kubeconfig of a client. Where a client dials all shards, kcp puts the URL of each
// shard in its place; the client's own URL is as good as any.
func (e Edge) ServerFor(client ID) Endpoint {
	i := slices.IndexFunc(e.Servers, func(s Endpoint) bool { return s.Component == client })
	return e.Servers[max(i, 0)]
}

// Edges returns all connections of the setup.
func (t *Topology) Edges() []Edge { return t.edges }

// EdgesFrom returns the connections in which c is a client.
func (t *Topology) EdgesFrom(c *Component) []Edge {
	var out []Edge
	for _, i := range t.outgoing[c.ID()] {
		out = append(out, t.edges[i])
	}
	return out
}

// connect applies the table of connections to the components, and orders the components by it.
func (t *Topology) connect() {
	t.outgoing = map[ID][]int{}
	for _, r := range connections {
		for _, e := range r.edges(t) {
			for _, client := range e.Clients {
				t.outgoing[client] = append(t.outgoing[client], len(t.edges))
				t.order(client, e.Servers[0].Component, r.wait)
			}
			t.edges = append(t.edges, e)
		}
	}
	for _, c := range t.Components {
		for _, ids := range [][]ID{c.Needs, c.Awaits} {
			slices.SortStableFunc(ids, func(a, b ID) int { return cmp.Compare(a.Kind().order(), b.Kind().order()) })
		}
	}
}

func (t *Topology) order(client, server ID, w wait) {
	if w == never {
		return
	}
	c := t.byID[client]
	c.Needs = append(c.Needs, server)
	if w == untilStarted {
		c.Awaits = append(c.Awaits, server)
	}
}

// edges applies a row to the components of a setup.
func (r connection) edges(t *Topology) []Edge {
	e := Edge{
		Cert: r.cert, Trust: r.by.trust, Accept: r.by.accept, Kubeconfig: r.kubeconfig,
		Context: r.context, Label: r.label,
		With: cmp.Or(r.with, r.kubeconfig), BundleFlag: r.bundleFlag, PathMapping: r.pathMapping,
		What: r.what, Optional: r.optional, Unverified: r.unverified,
	}
	var out []Edge
	add := func(clients []ID, servers []Endpoint, allowed string) {
		if len(clients) > 0 && len(servers) > 0 {
			e.Clients = clients
			e.Servers = servers
			e.AllowedHost = allowed
			out = append(out, e)
		}
	}
	switch {
	case r.target != nil:
		for _, client := range t.OfKind(r.from...) {
			if server := t.byID[r.target(client)]; server != nil && r.has(client) {
				add([]ID{client.ID()}, r.endpoints(server, client), r.allowedBy(server))
			}
		}
	case r.allowed != nil:
		for _, server := range t.OfKind(r.to...) {
			add(r.clients(t), r.endpoints(server, nil), r.allowedBy(server))
		}
	default:
		var servers []Endpoint
		for _, server := range t.OfKind(r.to...) {
			servers = append(servers, r.endpoints(server, nil)...)
		}
		add(r.clients(t), servers, "")
	}
	return out
}

func (r connection) clients(t *Topology) []ID {
	if r.from == nil {
		return []ID{Self}
	}
	var ids []ID
	for _, c := range t.OfKind(r.from...) {
		if r.has(c) {
			ids = append(ids, c.ID())
		}
	}
	return ids
}

func (r connection) has(client *Component) bool { return r.when == nil || r.when(client) }

func (r connection) allowedBy(server *Component) string {
	if r.allowed == nil {
		return ""
	}
	return r.allowed(server)
}

func (r connection) endpoints(server, client *Component) []Endpoint {
	all := r.at(server, client)
	for i := range all {
		all[i].Component, all[i].Cert = server.ID(), r.servingCert()
		if server.Serving != nil && all[i].Host == hostOf(server.ExternalURL) {
			all[i].Serving = server.Serving
		}
	}
	return all
}

func (r connection) servingCert() string { return cmp.Or(r.serverCert, CertServer) }

// Dials reports whether components of the kind dial components of another kind.
func (k Kind) Dials(to Kind) bool {
	return slices.ContainsFunc(connections, func(r connection) bool {
		return slices.Contains(r.from, k) && slices.Contains(r.to, to)
	})
}

// Parts returns the last parts of the names of all objects that a component of the kind can have, besides those named
// Object() without a part.
func (k Kind) Parts() []string {
	t := k.traits()
	out := slices.Clone(t.parts)
	add := func(part string) {
		if !slices.Contains(out, part) {
			out = append(out, part)
		}
	}
	for _, r := range connections {
		if slices.Contains(r.to, k) {
			add(r.servingCert())
		}
		if slices.Contains(r.from, k) && !t.oneSecret {
			add(r.cert)
		}
		if slices.Contains(r.from, k) && r.kubeconfig != "" {
			add(KubeconfigsPart)
		}
	}
	if t.data && t.serves {
		add(DataPart)
	}
	return out
}

// Dials reports whether c dials another component by a URL that its setup file may have to name. Of both it needs the
// kind, the name and, for a server of virtual workspaces, Serves and Custom.
func (c *Component) Dials(other *Component) bool {
	if other.Custom != nil && (c.Kind != FrontProxy || other.Custom.Path == "") || !administers(c) {
		return false
	}
	return slices.ContainsFunc(connections, func(r connection) bool {
		return slices.Contains(r.from, c.Kind) && slices.Contains(r.to, other.Kind) &&
			(r.target == nil || r.target(c) == other.ID())
	})
}

// Credential is a certificate of a component, as its connections demand it.
type Credential struct {
	// Name is the name of the certificate within its component.
	Name string
	// CA issues the certificate. The other ends of the connections verify it against the bundle of this authority.
	CA CA
	// Serves and Dials are set if the component presents it as a server and as a client.
	Serves, Dials bool
	// AllowedHost is a host name that servers require in it. Empty: they require none.
	AllowedHost string
}

// Credentials returns the certificates that c presents.
func (t *Topology) Credentials(c *Component) []Credential {
	var out []Credential
	find := func(name string, ca CA) *Credential {
		i := slices.IndexFunc(out, func(x Credential) bool { return x.Name == name })
		if i < 0 {
			i, out = len(out), append(out, Credential{Name: name, CA: ca})
		}
		return &out[i]
	}
	for _, r := range connections {
		if slices.Contains(r.to, c.Kind) {
			find(r.servingCert(), r.by.trust).Serves = true
		}
	}
	for _, e := range t.EdgesFrom(c) {
		x := find(e.Cert, e.Accept)
		x.Dials = true
		x.AllowedHost = e.AllowedHost
	}
	return out
}

// Bundles returns the authorities whose bundles c reads, to verify the servers that it dials and the clients that dial
// it.
func (t *Topology) Bundles(c *Component) []CA {
	reads := map[CA]bool{}
	for _, e := range t.EdgesFrom(c) {
		reads[e.Trust] = true
	}
	for _, r := range connections {
		if slices.Contains(r.to, c.Kind) && c.Verifies(r.by.accept) {
			reads[r.by.accept] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(CAs), func(ca CA) bool { return !reads[ca] })
}

// Verifies reports whether a server verifies clients against an authority: its release can, and its settings do not
// prevent it.
func (c *Component) Verifies(ca CA) bool {
	switch {
	case c.Kind == CacheServer && ca == ClientCA:
		return release.Of(c.Version).CacheClientCA
	case c.Kind == FrontProxy && ca == RequestHeaderCA:
		return c.Mounts()
	case c.Kind == FrontProxy && ca == ClientCA:
		return c.AcceptsClientCertificates()
	}
	return true
}

package pki

import (
	"crypto/x509"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Groups that kcp knows by name.
const (
	// GroupMasters has all permissions on a shard. Front-proxies drop it (kcp: pkg/proxy/options/authentication.go).
	GroupMasters = "system:masters"
	// GroupAdmin is the group with the most permissions that front-proxies pass on.
	GroupAdmin = "system:kcp:admin"
	// groupLogicalClusterAdmin gives a shard access to the logical clusters of other shards.
	groupLogicalClusterAdmin = "system:kcp:logical-cluster-admin"
	// GroupExternalLogicalClusterAdmin gives a shard access to logical clusters through a front-proxy. Its requests
	// are served while a logical cluster moves (kcp: pkg/server/filters/migratinglogicalcluster.go).
	GroupExternalLogicalClusterAdmin = "system:kcp:external-logical-cluster-admin"
)

// Common names that servers compare.
const (
	// CNFrontProxy is the name in the requestheader certificates of all front-proxies. Shards and servers of virtual
	// workspaces allow it.
	CNFrontProxy = "kcp-front-proxy"
	// CNMountsProxy is the name with which shards forward requests for mounted workspaces. Front-proxies allow it.
	CNMountsProxy = "kcp-mounts-proxy"
	// CNSelf is the name in the short-lived certificates of kcpctl itself.
	CNSelf = topology.ManagedBy
)

// Usage is an extended key usage, with the name that cert-manager and cfssl give it.
type Usage string

// The usages of certificates.
const (
	ServerAuth Usage = "server auth"
	ClientAuth Usage = "client auth"
)

func (u Usage) extKeyUsage() x509.ExtKeyUsage {
	if u == ServerAuth {
		return x509.ExtKeyUsageServerAuth
	}
	return x509.ExtKeyUsageClientAuth
}

// Cert is a certificate of the setup: its owner, its contents, and where it is stored.
type Cert struct {
	Component topology.ID
	// Cluster is the name of the cluster that holds the Secret.
	Cluster string
	// Name is the certificate's name within its component.
	Name string
	// Secret is the name of the Secret that holds the certificate.
	Secret string

	CA     topology.CA
	CN     string
	Orgs   []string
	Hosts  []string
	Usages []Usage
	// Validity is how long the certificate is valid, unless its authority expires earlier.
	Validity time.Duration
}

// Key returns the place where the certificate is stored.
func (c Cert) Key() LeafKey { return LeafKey{Cluster: c.Cluster, Secret: c.Secret} }

// KeyOf returns the place where a certificate of a component is stored.
func KeyOf(c *topology.Component, cert string) LeafKey {
	return LeafKey{Cluster: c.Cluster.Name, Secret: c.CertSecret(cert)}
}

// Table returns all certificates of a setup, in the order of its components.
func Table(t *topology.Topology) []Cert {
	var all []Cert
	for _, c := range t.Components {
		all = append(all, CertsOf(t, c)...)
	}
	return all
}

// CertsOf returns the certificates of a component: those that its connections demand, with the subjects of the table.
func CertsOf(t *topology.Topology, c *topology.Component) []Cert {
	credentials := t.Credentials(c)
	var certs []Cert
	for _, s := range subjects {
		i := slices.IndexFunc(credentials, func(x topology.Credential) bool { return x.Name == s.cert })
		if i < 0 || s.kind != "" && s.kind != c.Kind ||
			slices.ContainsFunc(certs, func(earlier Cert) bool { return earlier.Name == s.cert }) {
			continue
		}
		cert := Cert{
			Component: c.ID(), Cluster: c.Cluster.Name, Name: s.cert, Secret: c.CertSecret(s.cert),
			CA: credentials[i].CA, Validity: t.Setup.Spec.PKI.CertificateValidity.Duration,
		}
		cert.CN, cert.Orgs = s.of(c)
		if c.Access != nil {
			cert.Validity = c.Access.Validity.Duration
		}
		cert.Hosts, cert.Usages = hostsAndUsages(c, credentials[i])
		certs = append(certs, cert)
	}
	return certs
}

func hostsAndUsages(c *topology.Component, x topology.Credential) (hosts []string, usages []Usage) {
	if x.Serves {
		usages = append(usages, ServerAuth)
		if hosts = c.Hosts(); x.Name == topology.CertPeer {
			hosts = c.MemberHosts()
		}
	}
	if x.Dials {
		usages = append(usages, ClientAuth)
	}
	if x.AllowedHost != "" && !slices.Contains(hosts, x.AllowedHost) {
		hosts = append(hosts, x.AllowedHost)
	}
	return hosts, usages
}

// subject is who a certificate names.
type subject struct {
	cert string
	// kind is the kind of components that the row is for. Empty: all kinds without an earlier row.
	kind topology.Kind
	// The common name is cn, or prefix and the short name of the component. Without both it is the name of the
	// component's workload: servers do not compare it.
	cn, prefix string
	orgs       []string
}

// subjects are the subjects of all certificates. Components list their certificates in the order of the rows.
var subjects = []subject{
	{cert: topology.CertServer},
	{cert: topology.CertPeer},
	{cert: topology.CertClient, kind: topology.RootShard, cn: topology.RootShardName, orgs: []string{GroupMasters}},
	{cert: topology.CertClient, kind: topology.Shard, prefix: "shard-", orgs: []string{GroupMasters}},
	{cert: topology.CertClient, kind: topology.VirtualWorkspaces, prefix: "virtual-workspaces-",
		orgs: []string{GroupMasters}},
	{cert: topology.CertClient}, // a user: without a group, it has only the rights of its own roles
	{cert: topology.CertLogicalClusterAdmin, prefix: "logical-cluster-admin-",
		orgs: []string{groupLogicalClusterAdmin}},
	{cert: topology.CertExternalLogicalClusterAdmin, prefix: "external-logical-cluster-admin-",
		orgs: []string{GroupExternalLogicalClusterAdmin}},
	{cert: topology.CertMountsProxy, cn: CNMountsProxy},
	{cert: topology.CertEtcdClient},
	{cert: topology.CertShardClient, cn: CNFrontProxy, orgs: []string{GroupMasters}},
	{cert: topology.CertRequestHeader, cn: CNFrontProxy},
	{cert: topology.CertFrontProxyClient, prefix: "virtual-workspaces-",
		orgs: []string{GroupExternalLogicalClusterAdmin}},
}

// of returns the common name and the organizations in a certificate of c.
func (s subject) of(c *topology.Component) (cn string, orgs []string) {
	switch {
	case c.Access != nil:
		return c.Access.User, userGroups(c)
	case c.User() != "":
		return c.User(), nil
	case s.cn != "":
		return s.cn, s.orgs
	case s.cert == topology.CertFrontProxyClient && !release.ExternalReviews(c.Version):
		return s.prefix + c.ID().ShortName(), []string{GroupAdmin}
	case s.prefix != "":
		return s.prefix + c.ID().ShortName(), s.orgs
	case s.cert == topology.CertPeer:
		return c.Object(s.cert), s.orgs
	}
	return c.Object(), s.orgs
}

func userGroups(c *topology.Component) []string {
	groups := slices.Clone(c.Access.Groups)
	if len(c.Access.ClusterRoles) > 0 {
		groups = append(groups, KubeconfigGroup(c))
	}
	return groups
}

// KubeconfigGroup returns the group that the cluster roles of a kubeconfig are bound to. Only the user of this
// kubeconfig is in it, so that the roles never reach another user with the same name.
func KubeconfigGroup(c *topology.Component) string {
	return "kcpctl:" + c.Setup + ":kubeconfig:" + c.Name
}

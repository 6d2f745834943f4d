package pki

import (
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/release"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Names of certificates within their component: the folder in topology.Files, and the last part of the Secret's name.
// Package setup refuses names of components with which two Secrets would become one.
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

// Usage is an extended key usage, in cfssl's words.
type Usage string

// The usages of certificates.
const (
	ServerAuth Usage = "server auth"
	ClientAuth Usage = "client auth"
)

// Cert is a certificate of the setup: whose it is, what it says, and where it is kept.
type Cert struct {
	Component topology.ID
	// Cluster is the name of the cluster that holds the Secret.
	Cluster string
	// Name is the certificate's name within its component.
	Name string
	// Secret is the name of the Secret that holds it.
	Secret string
	// Kubeconfig says that the Secret also holds a kubeconfig with the certificate in it.
	Kubeconfig bool

	CA     CA
	CN     string
	Orgs   []string
	Hosts  []string
	Usages []Usage
	// Validity is how long the certificate is valid, unless its authority expires earlier.
	Validity time.Duration
}

// Key says where the certificate is kept.
func (c Cert) Key() LeafKey { return LeafKey{Cluster: c.Cluster, Secret: c.Secret} }

// Table returns every certificate of a setup, in the order of its components.
func Table(t *topology.Topology) []Cert {
	var all []Cert
	for _, c := range t.Components {
		all = append(all, CertsOf(t, c)...)
	}
	return all
}

// CertsOf returns the certificates of a component.
func CertsOf(t *topology.Topology, c *topology.Component) []Cert {
	certs := rows(t, c)
	for i := range certs {
		row := &certs[i]
		row.Component, row.Cluster = c.ID(), c.Cluster.Name
		row.Validity = t.Setup.Spec.PKI.CertificateValidity.Duration
		if row.Secret = c.Object(row.Name); row.Kubeconfig {
			row.Secret, row.Validity = c.Object(), c.Access.Validity.Duration
		}
	}
	return certs
}

// rows say what each kind of component presents to others. Serving certificates carry their component's name only for
// people: clients look at the hosts.
func rows(t *topology.Topology, c *topology.Component) []Cert {
	server := Cert{Name: CertServer, CA: ServerCA, CN: c.Object(), Hosts: c.Hosts(), Usages: []Usage{ServerAuth}}
	switch c.Kind {
	case topology.Etcd:
		// An etcd's probes dial it with its serving certificate, and its peers each other with theirs.
		both := []Usage{ServerAuth, ClientAuth}
		return []Cert{
			{Name: CertServer, CA: EtcdCA, CN: c.Object(), Hosts: append(c.Hosts(), c.ClientHost()), Usages: both},
			{Name: CertPeer, CA: EtcdCA, CN: c.Object(CertPeer), Hosts: memberHosts(c), Usages: both},
		}
	case topology.CacheServer:
		return append([]Cert{server}, etcdClient(t, c)...)
	case topology.RootShard, topology.Shard:
		return append(append([]Cert{server}, shardClients(c)...), etcdClient(t, c)...)
	case topology.FrontProxy:
		return []Cert{
			server,
			client(CertShardClient, ClientCA, CNFrontProxy, GroupMasters),
			client(CertRequestHeader, RequestHeaderCA, CNFrontProxy),
		}
	case topology.VirtualWorkspaces:
		cn := cnVirtualWorkspaces + c.Name
		return []Cert{
			server,
			client(CertClient, ClientCA, cn, GroupMasters),
			client(CertFrontProxyClient, ClientCA, cn, GroupAdmin),
		}
	case topology.Kubeconfig:
		user := client(CertClient, ClientCA, c.Access.User, userGroups(c)...)
		user.Kubeconfig = true
		return []Cert{user}
	}
	return nil
}

// shardClients are what a shard presents to other shards, the cache server, virtual workspaces and front-proxies.
func shardClients(c *topology.Component) []Cert {
	certs := []Cert{
		client(CertClient, ClientCA, shardCN(c), GroupMasters),
		client(CertLogicalClusterAdmin, ClientCA, cnLogicalClusterAdmin+c.ShardName(), GroupLogicalClusterAdmin),
		client(CertExternalLogicalClusterAdmin, ClientCA, cnExternalLogicalClusterAdmin+c.ShardName(),
			GroupExternalLogicalClusterAdmin),
	}
	if release.Of(c.Version).MountProxy {
		certs = append(certs, client(CertMountsProxy, RequestHeaderCA, CNMountsProxy))
	}
	return certs
}

// etcdClient is what c presents to its etcd, if kcpctl runs it. All etcds trust one authority, so the host says which of
// them it is for.
func etcdClient(t *topology.Topology, c *topology.Component) []Cert {
	if !managedEtcd(c) {
		return nil
	}
	cert := client(CertEtcdClient, EtcdCA, c.Object())
	cert.Hosts = []string{t.Component(c.Storage.Etcd).ClientHost()}
	return []Cert{cert}
}

func client(name string, ca CA, cn string, orgs ...string) Cert {
	return Cert{Name: name, CA: ca, CN: cn, Orgs: orgs, Usages: []Usage{ClientAuth}}
}

func userGroups(c *topology.Component) []string {
	groups := slices.Clone(c.Access.Groups)
	if len(c.Access.ClusterRoles) > 0 {
		groups = append(groups, KubeconfigGroup(c))
	}
	return groups
}

func memberHosts(c *topology.Component) []string {
	var hosts []string
	for i := range c.Replicas {
		hosts = append(hosts, c.MemberHost(i))
	}
	return hosts
}

func managedEtcd(c *topology.Component) bool { return c.Storage != nil && c.Storage.Etcd != "" }

// Bundles returns the authorities whose bundles a component reads: to verify those it dials, and those who dial it.
func Bundles(c *topology.Component) []CA {
	var cas []CA
	switch c.Kind {
	case topology.Etcd:
		return []CA{EtcdCA}
	case topology.Kubeconfig:
		return []CA{ServerCA}
	case topology.CacheServer:
		if release.Of(c.Version).CacheClientCA {
			cas = []CA{ClientCA}
		}
	case topology.RootShard, topology.Shard, topology.VirtualWorkspaces:
		cas = []CA{ServerCA, ClientCA, RequestHeaderCA}
	case topology.FrontProxy:
		cas = []CA{ServerCA, ClientCA}
		if release.Of(c.Version).MountProxy {
			cas = append(cas, RequestHeaderCA)
		}
	}
	if managedEtcd(c) {
		cas = append(cas, EtcdCA)
	}
	return cas
}

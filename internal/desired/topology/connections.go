package topology

import (
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// wait is the state of the server that a client waits for before it starts.
type wait int

const (
	never        wait = iota // it starts without the server
	untilReady               // it starts when the server is ready
	untilStarted             // its own process waits for the server, so a new one starts as soon as the server has started
)

// connection is a row of the table of connections: components of some kinds dial components of other kinds.
type connection struct {
	// from are the kinds of the clients. Nil: kcpctl itself.
	from, to []Kind
	// target picks the one component that a client dials. Nil: each client dials all components of the kinds.
	target func(client *Component) ID
	// when reports whether a client has the connection. Nil: every client has it.
	when func(client *Component) bool
	// at returns the addresses of a server, of which it sets URL and Host. The client is nil in a row without a target.
	at func(server, client *Component) []Endpoint
	// cert and serverCert are the certificates of both ends. Default of serverCert: CertServer.
	cert, serverCert string
	by               verification
	// allowed returns the host name that a server requires in the certificates of clients.
	allowed func(server *Component) string
	// kubeconfig, context, label, with, bundleFlag and pathMapping are fields of Edge. Default of with: kubeconfig.
	kubeconfig, context, label string
	with, bundleFlag           string
	pathMapping                bool
	// what and optional are fields of Edge. what is set where a client can dial a server of another cluster.
	what     string
	optional bool
	// unverified is a field of Edge.
	unverified bool
	wait       wait
}

// verification is how both ends verify each other: trust is the authority whose bundle verifies the server, accept the
// one whose bundle verifies the client.
type verification struct{ trust, accept CA }

var (
	asClient = verification{ServerCA, ClientCA}
	// asProxy is for clients that pass on the identity of a user.
	asProxy = verification{ServerCA, RequestHeaderCA}
	inEtcd  = verification{EtcdCA, EtcdCA}
)

var (
	etcds       = []Kind{Etcd}
	caches      = []Kind{CacheServer}
	shards      = []Kind{RootShard, Shard}
	proxies     = []Kind{FrontProxy}
	workspaces  = []Kind{VirtualWorkspaces}
	kubeconfigs = []Kind{Kubeconfig}
	monitors    = []Kind{Monitoring}
	agents      = []Kind{Agent}
	controllers = []Kind{Workloads}
	syncers     = []Kind{Physical}
)

// connections is the table of all connections: it decides who dials whom, where, with which certificate and trusting
// which authority. The offline proof, certificates, kubeconfigs, the drawing, the order of components and checks of
// the setup file are read from it. Kubeconfigs of a component are listed in the order of the rows.
var connections = []connection{
	{from: etcds, to: etcds, target: (*Component).ID, at: memberHosts, cert: CertPeer, serverCert: CertPeer, by: inEtcd,
		allowed: firstMember, bundleFlag: FlagPeerCA},
	// Probes run in the pod of their member, and present its serving certificate.
	{from: etcds, to: etcds, target: (*Component).ID, at: urlAndLocalhost, cert: CertServer, by: inEtcd,
		allowed: (*Component).ClientHost},

	// Shards dial the logical clusters and the virtual workspaces of all shards. kcp puts the URL of each shard into
	// the kubeconfig (kcp: pkg/server/config.go).
	{from: shards, to: shards, at: baseURL, cert: CertLogicalClusterAdmin, by: asClient,
		kubeconfig: KubeconfigLogicalClusterAdmin, context: ContextBase, what: "logical clusters"},
	{from: shards, to: slices.Concat(shards, workspaces), at: workspacesURL, cert: CertClient, by: asClient,
		bundleFlag: "shard-virtual-workspace-ca-file", what: "virtual workspaces"},

	// Front-proxies dial all shards. kcp puts the URL of each shard into the kubeconfig for the root shard (kcp:
	// pkg/proxy/config.go).
	{from: proxies, to: shards, at: baseURL, cert: CertShardClient, by: asClient, with: KubeconfigShards,
		what: "index of workspaces"},
	{from: proxies, to: shards, at: baseURL, cert: CertRequestHeader, by: asProxy, bundleFlag: FlagPathMapping,
		label: "requests", what: "requests of clients"},
	// A workspace can be mounted from a virtual workspace: its requests go to the URL of the mount (kcp:
	// pkg/index/index.go).
	{from: proxies, to: workspaces, when: (*Component).Mounts, at: baseURL, cert: CertRequestHeader, by: asProxy,
		bundleFlag: FlagPathMapping, what: "mounted workspaces", optional: true},
	// A front-proxy requests the identities of kcp's APIs from the root shard, and does not listen before it has them
	// (kcp: pkg/proxy).
	{from: proxies, to: shards, target: rootShard, at: nearURL, cert: CertShardClient, by: asClient,
		kubeconfig: KubeconfigShards, context: ContextSystemAdmin, wait: untilStarted, what: "identities of APIs"},
	{from: proxies, to: shards, target: rootShard, at: nearURL, cert: CertRequestHeader, by: asProxy, pathMapping: true,
		bundleFlag: FlagPathMapping, what: "requests of clients"},
	{from: proxies, to: workspaces, at: mappedURL, cert: CertRequestHeader, by: asProxy, pathMapping: true,
		bundleFlag: FlagPathMapping, what: "requests of clients"},

	{from: workspaces, to: shards, when: administers, target: servedShard, at: nearURL, cert: CertClient, by: asClient,
		kubeconfig: KubeconfigShard, context: ContextShardBase, label: "serves", wait: untilReady,
		what: "objects of the shard"},
	{from: workspaces, to: proxies, when: administers, target: frontProxy, at: frontProxyURL,
		cert: CertFrontProxyClient, by: asClient,
		kubeconfig: KubeconfigExternalLogicalClusterAdmin, context: ContextBase, wait: untilReady,
		what: "workspaces of other shards"},

	{from: shards, to: proxies, target: frontProxy, at: frontProxyURL,
		cert: CertExternalLogicalClusterAdmin, by: asClient,
		kubeconfig: KubeconfigExternalLogicalClusterAdmin, context: ContextBase, what: "workspaces of other shards"},
	// A shard requests the identities of kcp's APIs from the root shard, and lists the cache, until both answer (kcp:
	// pkg/server/server.go, kcp-start-informers).
	{from: []Kind{Shard}, to: shards, target: rootShard, at: nearURL, cert: CertClient, by: asClient,
		kubeconfig: KubeconfigRootShard, context: ContextShardBase, label: "registers", wait: untilStarted,
		what: "registration, identities of APIs"},
	{from: shards, to: caches, target: cacheServer, at: nearURL, cert: CertClient, by: asClient,
		kubeconfig: KubeconfigCache, context: contextCache, label: "replicates", wait: untilStarted,
		what: "cache"},
	{from: workspaces, to: caches, when: administers, target: cacheServer, at: nearURL, cert: CertClient, by: asClient,
		kubeconfig: KubeconfigCache, context: contextCache, what: "cache"},
	// A cache that is embedded in the root shard is in no other shard, so a server of virtual workspaces finds it in
	// its own shard only if that is the root shard (kcp: pkg/server/server.go).
	{from: workspaces, to: shards, when: administers, target: embeddedCache, at: nearURL,
		cert: CertClient, by: asClient,
		kubeconfig: KubeconfigCache, context: contextCache, wait: untilStarted, what: "cache"},
	// Requests for mounted workspaces go back to the front-proxies (kcp: pkg/server/localproxy.go), and shards do not
	// verify these (kcp: pkg/server/config.go, mountProxyTransport).
	{from: shards, to: proxies, when: (*Component).Mounts, at: mountURL, cert: CertMountsProxy, by: asProxy,
		what: "mounted workspaces", optional: true, unverified: true},
	{from: slices.Concat(caches, shards), to: etcds, target: managedEtcd, at: baseURL, cert: CertEtcdClient, by: inEtcd,
		bundleFlag: "etcd-cafile", allowed: (*Component).ClientHost, label: "stores", wait: untilReady},

	{from: kubeconfigs, to: slices.Concat(proxies, shards), target: accessTarget, at: accessURL, cert: CertClient,
		by: asClient, with: kubeconfigUser, wait: untilReady},
	// Users find the URLs of virtual workspaces in APIExportEndpointSlices, and dial those that lead out of their
	// cluster.
	{from: kubeconfigs, to: slices.Concat(shards, workspaces), at: outerWorkspacesURL, cert: CertClient, by: asClient,
		with: kubeconfigUser},

	// A Prometheus dials the pods of servers. Servers of virtual workspaces let only the group system:masters read
	// their metrics (kcp: cmd/virtual-workspaces/options has no flags for authorization).
	{from: monitors, to: slices.Concat(caches, shards, proxies), at: metricsHost, cert: CertClient, by: asClient},

	// An agent dials a front-proxy for the workspace of its APIExport, and every URL of the APIExportEndpointSlice with
	// the same certificate and the same authority (multicluster-provider: pkg/provider/provider.go replaces only the
	// host).
	{from: agents, to: proxies, target: frontProxy, at: exportURL, cert: CertClient, by: asClient,
		kubeconfig: KubeconfigKcp, context: ContextWorkspace, label: "publishes", wait: untilReady,
		what: "workspace of the APIExport"},
	{from: agents, to: proxies, when: servesWorkspace, target: frontProxy, at: serviceURL,
		cert: CertClient, by: asClient,
		kubeconfig: KubeconfigService, context: ContextWorkspace},
	{from: agents, to: slices.Concat(shards, workspaces), at: workspacesURL, cert: CertClient, by: asClient,
		with: KubeconfigKcp, what: "virtual workspaces"},

	// The controller of transparent multi-cluster dials a front-proxy for the compute workspace, and every URL of the
	// APIExportEndpointSlices with the same certificate.
	{from: controllers, to: proxies, target: frontProxy, at: computeURL, cert: CertClient, by: asClient,
		kubeconfig: KubeconfigKcp, context: ContextWorkspace, label: "schedules", wait: untilReady,
		what: "compute workspace"},
	{from: controllers, to: slices.Concat(shards, workspaces), at: workspacesURL, cert: CertClient, by: asClient,
		with: KubeconfigKcp, what: "virtual workspaces"},

	// A syncer does the same, from its physical cluster.
	{from: syncers, to: proxies, when: (*Component).Pulls, target: frontProxy, at: computeURL,
		cert: CertClient, by: asClient,
		kubeconfig: KubeconfigKcp, context: ContextWorkspace, label: "syncs", wait: untilReady,
		what: "compute workspace"},
	{from: syncers, to: slices.Concat(shards, workspaces), when: (*Component).Pulls, at: workspacesURL,
		cert: CertClient, by: asClient,
		with: KubeconfigKcp, what: "virtual workspaces"},

	// kcpctl itself dials through a port-forward, and expects the name of the Service. A front-proxy that refuses
	// client certificates is dialled only for its health, which needs none.
	{to: kindsThat(Kind.Serves), at: forwarded, by: asClient},
	{to: etcds, at: forwarded, by: inEtcd, allowed: (*Component).ClientHost},
}

// The targets of the table.

func rootShard(*Component) ID   { return ID(RootShard) }
func cacheServer(*Component) ID { return ID(CacheServer) }

// embeddedCache is the root shard if it has the cache that a server of virtual workspaces does not find in its own
// shard.
func embeddedCache(c *Component) ID {
	if c.CacheServer || c.Serves == ID(RootShard) {
		return ""
	}
	return ID(RootShard)
}

func servedShard(c *Component) ID { return c.Serves }
func frontProxy(c *Component) ID  { return c.FrontProxy }

// administers reports whether a server of virtual workspaces dials with certificates of the setup. With a kubeconfig of
// the user, kcpctl does not know what it dials.
func administers(c *Component) bool { return c.Custom == nil || c.Custom.KubeconfigSecret == "" }

func managedEtcd(c *Component) ID {
	if c.Storage == nil {
		return ""
	}
	return c.Storage.Etcd
}

func accessTarget(c *Component) ID {
	if c.Access == nil {
		return ""
	}
	return c.Access.Target
}

func servesWorkspace(c *Component) bool { return c.Agent != nil && c.Agent.ServiceWorkspace() != "" }

// Mounts reports whether a shard or a front-proxy forwards requests for workspaces that are mounted.
func (c *Component) Mounts() bool {
	return c.FeatureGates[v1alpha1.GateWorkspaceMounts] && release.Of(c.Version).MountProxy
}

// The addresses of the table.

func at(url string) []Endpoint { return []Endpoint{{URL: url, Host: hostOf(url)}} }

func baseURL(server, _ *Component) []Endpoint { return at(server.URL) }

// mountURL is the external URL, unless something in front of the server terminates TLS: the client's certificate, for
// which a front-proxy trusts the identity in the headers, ends there.
func mountURL(server, _ *Component) []Endpoint {
	if server.Serving != nil && server.Serving.Edge {
		return nil
	}
	return at(server.ExternalURL)
}

func nearURL(server, client *Component) []Endpoint { return at(server.URLFrom(client.Cluster)) }

// mappedURL is the URL of a server to which front-proxies send the requests for a path.
func mappedURL(server, _ *Component) []Endpoint {
	if server.Custom == nil || server.Custom.Path == "" {
		return nil
	}
	return at(server.URL)
}

func frontProxyURL(_, client *Component) []Endpoint { return at(client.FrontProxyURL) }

func exportURL(_, client *Component) []Endpoint {
	return at(workspaceURL(client.FrontProxyURL, client.Agent.Workspace))
}

func serviceURL(_, client *Component) []Endpoint {
	return at(workspaceURL(client.FrontProxyURL, client.Agent.ServiceWorkspace()))
}

func computeURL(_, client *Component) []Endpoint {
	return at(workspaceURL(client.FrontProxyURL, client.ComputeWorkspace()))
}

func accessURL(_, client *Component) []Endpoint { return at(client.Access.URL) }

// workspacesURL is the URL of the virtual workspaces that the server serves itself.
func workspacesURL(server, _ *Component) []Endpoint {
	if own := server.ownVirtualWorkspaceURL(); own != "" {
		return at(own)
	}
	return nil
}

// outerWorkspacesURL does the same, if the URL does not belong to a Service in the server's cluster.
func outerWorkspacesURL(server, client *Component) []Endpoint {
	if strings.HasSuffix(hostOf(server.ownVirtualWorkspaceURL()), ".svc."+server.Cluster.Domain) {
		return nil
	}
	return workspacesURL(server, client)
}

func forwarded(server, _ *Component) []Endpoint {
	if !server.AcceptsClientCertificates() {
		return nil
	}
	if server.Cluster.Local {
		return at(server.URL)
	}
	return []Endpoint{{Host: server.Host()}}
}

func memberHosts(server, _ *Component) []Endpoint {
	var out []Endpoint
	for _, host := range server.MemberHosts() {
		out = append(out, Endpoint{Host: host})
	}
	return out
}

func urlAndLocalhost(server, _ *Component) []Endpoint {
	return append(at(server.URL), Endpoint{Host: "localhost"})
}

func firstMember(etcd *Component) string { return etcd.MemberHost(0) }

// Package topology turns a setup into its components. Every name, host, port, URL, path, placement, connection and
// dependency is decided here, once. It is pure.
package topology

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Topology is the components of a setup, and how they are connected.
type Topology struct {
	// Setup is the setup with all its defaults.
	Setup *v1alpha1.Setup
	// Name is the setup's name.
	Name string
	// Home is the cluster of the root shard, where the setup's state is kept.
	Home Cluster
	// Clusters are the clusters that components are placed on, in the order of the setup file.
	Clusters []Cluster
	// Components are all components, each after the components that it needs.
	Components []*Component

	byID  map[ID]*Component
	edges []Edge
	// outgoing are the indexes of the edges in which a component is a client.
	outgoing map[ID][]int
}

// Cluster is a Kubernetes cluster and a namespace in it.
type Cluster struct {
	Name       string
	Context    string
	Kubeconfig string
	Namespace  string
	Domain     string
	// As and AsGroups are the user and the groups to impersonate.
	As       string
	AsGroups []string
	// Region is a label of what runs there.
	Region string
	// IPFamilyPolicy and IPFamilies are fields of the Services. Empty: the defaults of the cluster.
	IPFamilyPolicy corev1.IPFamilyPolicy
	IPFamilies     []corev1.IPFamily
	// Metadata are labels and annotations of all objects there, except those that the objects have themselves.
	Metadata v1alpha1.CommonMetadata
	// Local is set for this machine, which runs components as processes. The other fields are then empty.
	Local bool
}

// SameServer reports whether two clusters of a setup are namespaces of one Kubernetes cluster, as far as the setup file
// tells.
func (c Cluster) SameServer(o Cluster) bool {
	return c.Local == o.Local && c.Context == o.Context && c.Kubeconfig == o.Kubeconfig
}

// Component is one deployable part of a setup.
type Component struct {
	Kind  Kind
	Name  string
	Setup string
	// Cluster is where the component is placed.
	Cluster Cluster
	// Needs are the components that must be ready before this one is ready, and before it is changed.
	Needs []ID
	// Awaits are the components of Needs that this one's own process waits for. If it is new, it is started before they
	// are ready: that saves the time in which all of them initialize alone.
	Awaits []ID

	// Version is the kcp release that the component runs. Its flags depend on it.
	Version     string
	Image       string
	PullPolicy  corev1.PullPolicy
	PullSecrets []string
	// Replicas is the number of replicas. If Autoscaled is set, others set the number, and this is the first one.
	Replicas   int32
	Autoscaled bool
	// Autoscaling is the autoscaler that sets the number. Nil: kcpctl creates none.
	Autoscaling *v1alpha1.Autoscaling
	Resources   corev1.ResourceRequirements
	// ServerSettings are the flags of servers of kcp. Of these, agents and workloads only have a log level.
	v1alpha1.ServerSettings
	ExtraArgs []string
	// Monitored is set if a Prometheus may read its metrics.
	Monitored bool
	// FeatureGates are the feature gates of a shard or a front-proxy.
	FeatureGates map[string]bool
	// Aliases are the names of additional Services. They are empty on this machine.
	Aliases []string
	// PodTemplates and Services are merged into the rendered objects, in this order.
	PodTemplates []v1alpha1.Overlay
	Services     []v1alpha1.Overlay

	// BindAddress is the address that the server listens on.
	BindAddress string
	// Port is the port that the server listens on; for an etcd, the port for clients.
	Port int32
	// ServicePort is the port of the Service.
	ServicePort int32
	// Expose is how the component is reached from outside its cluster. It is empty on this machine.
	Expose v1alpha1.Expose
	// Assignment is which parts of its address the cluster assigns.
	Assignment Assignment
	// NodePort is the port of the nodes that leads to the Service. 0: Kubernetes chooses one if the type of the Service
	// needs it.
	NodePort int32
	// URL is the base URL: how other components reach this one.
	URL string
	// ExternalURL is how clients reach kcp (shards), or this front-proxy.
	ExternalURL string
	// VirtualWorkspaceURL is how clients reach the virtual workspaces of a shard.
	VirtualWorkspaceURL string
	// ShardLabels are the labels of a shard in kcp.
	ShardLabels map[string]string
	// ConfigDir is the directory of the files that the component reads (see Files).
	ConfigDir string
	// DataDir is the directory that the component keeps data in.
	DataDir string

	// Storage is where the component's data is stored. It is nil if the component stores none.
	Storage *Storage
	// Serves is the shard that a server of virtual workspaces works for.
	Serves ID
	// CacheServer is set for a server of virtual workspaces if the setup has a cache server.
	CacheServer bool
	// Custom is a server of virtual workspaces that is a server of the user. Nil: it is kcp's.
	Custom *v1alpha1.VirtualWorkspace
	// VirtualWorkspaces is the server of a shard's virtual workspaces. It is empty if the shard serves them itself.
	VirtualWorkspaces ID
	// FrontProxy is the front-proxy through which a shard reaches the workspaces of other shards, and FrontProxyURL the
	// URL at which this component dials it.
	FrontProxy    ID
	FrontProxyURL string
	// Authentication is how a front-proxy or a shard authenticates its clients. It is nil for other kinds.
	Authentication *Authentication
	// Audit is how a shard, or a server of its virtual workspaces, records requests. Nil: not at all.
	Audit *v1alpha1.Audit
	// Authorization is how a shard authorizes requests. Nil: as kcp does by default.
	Authorization *v1alpha1.Authorization
	// Serving is the user's own certificate that a front-proxy serves for the host of its ExternalURL. Nil: it serves
	// the certificate of the setup.
	Serving *v1alpha1.Serving
	// PathMappings are the mappings of a front-proxy besides the ones that every front-proxy has.
	PathMappings []v1alpha1.PathMapping
	// Access describes a component of kind Kubeconfig. It is nil for other kinds.
	Access *Access
	// Workspace is the workspace of a component of kind Workspace. It is nil for other kinds.
	Workspace *WorkspaceSpec
	// Agent is what an agent publishes.
	Agent *Publishing
	// Workloads are the settings of the controller of transparent multi-cluster, and Physical the settings of a
	// physical cluster.
	Workloads *v1alpha1.Workloads
	Physical  *PhysicalCluster
}

// Storage describes where a component's data is stored: in an etcd, or in a volume that an etcd writes to.
type Storage struct {
	// Etcd is the managed etcd, and Servers are its URLs or the URLs of an external one. Both are empty for an embedded
	// one.
	Etcd    ID
	Servers []string
	Prefix  string
	// TLSSecret is the Secret with the client credentials for an external etcd.
	TLSSecret string
	// Embedded is set if etcd runs inside the component's process. ClientPort and PeerPort are the ports that it
	// listens on.
	Embedded             bool
	ClientPort, PeerPort int32
	// Size and Class describe the volume of an embedded or managed etcd. An Ephemeral volume is deleted with its pod.
	Size      string
	Class     string
	Ephemeral bool
	// Quota is the size in bytes that the data of a managed etcd may have, and AutoCompaction how long it keeps earlier
	// revisions. 0: etcd decides.
	Quota          int64
	AutoCompaction time.Duration
}

// AlmostFull is the share of its quota from which on a database counts as almost full.
const AlmostFull = 0.8

// Quota returns the size in bytes at which the etcd of a component, or an etcd itself, accepts no more writes. It is 0
// for an external one. The default is etcd's (etcd: server/storage/quota.go, DefaultQuotaBytes).
func (t *Topology) Quota(c *Component) int64 {
	const etcdQuota = 2 << 30
	switch {
	case c.Storage == nil:
		return 0
	case c.Storage.Etcd != "":
		return t.Quota(t.Component(c.Storage.Etcd))
	case c.Storage.Embedded || c.Kind == Etcd:
		return cmp.Or(c.Storage.Quota, etcdQuota)
	}
	return 0
}

// KeyPrefix returns what begins all keys of a shard (kcp: pkg/server/options, etcd-prefix).
func (s *Storage) KeyPrefix() string { return cmp.Or(s.Prefix, "/registry") }

// Access describes a kubeconfig.
type Access struct {
	// Target is the front-proxy or shard that the kubeconfig dials, and URL its address.
	Target ID
	URL    string
	// Serving is the user's own certificate that is served there. Nil: the certificate of the setup is served.
	Serving *v1alpha1.Serving
	v1alpha1.Kubeconfig
}

// ID returns the component's name within its setup.
func (c *Component) ID() ID { return IDOf(c.Kind, c.Name) }

// Object returns the name of an object of c. Object() is its workload and its Service.
func (c *Component) Object(parts ...string) string { return Object(c.Setup, c.Kind, c.Name, parts...) }

// CertSecret returns the name of the Secret that holds a certificate of c.
func (c *Component) CertSecret(cert string) string {
	if c.Kind.traits().oneSecret {
		return c.Object()
	}
	return c.Object(cert)
}

// ShardName returns the name of a shard in kcp.
func (c *Component) ShardName() string { return c.ID().ShortName() }

// Runs reports whether c is a workload. The others are only objects.
func (c *Component) Runs() bool { return c.Kind.Runs() && (c.Kind != Physical || c.Pulls()) }

// IsShard reports whether c is the root shard or another shard.
func (c *Component) IsShard() bool { return c.Kind.IsShard() }

// Proxied reports whether front-proxies forward requests to c.
func (c *Component) Proxied() bool { return c.Kind.Proxied() }

// Replicated reports whether c has several replicas, or may have them.
func (c *Component) Replicated() bool { return c.Autoscaled || c.Replicas > 1 }

// MayLeaveReplicas reports whether the setup file may leave the number of replicas of c to others.
func (c *Component) MayLeaveReplicas() bool {
	return c.Kind.Serves() && (c.Storage == nil || !c.Storage.Embedded)
}

// Path returns the absolute path of one of the component's Files.
func (c *Component) Path(file string) string { return path.Join(c.ConfigDir, file) }

// Host returns the DNS name of the component's Service within its cluster.
func (c *Component) Host() string {
	return fmt.Sprintf("%s.%s.svc.%s", c.Object(), c.Cluster.Namespace, c.Cluster.Domain)
}

// Member returns the name of a member of a managed etcd, which is also the name of its pod.
func (c *Component) Member(i int32) string { return fmt.Sprintf("%s-%d", c.Object(), i) }

// MemberHost returns the DNS name of a member of a managed etcd.
func (c *Component) MemberHost(i int32) string {
	return fmt.Sprintf("%s.%s.%s.svc.%s", c.Member(i), c.Object(PeerService), c.Cluster.Namespace, c.Cluster.Domain)
}

// MemberHosts returns the DNS names of all members of a managed etcd.
func (c *Component) MemberHosts() []string {
	var hosts []string
	for i := range c.Replicas {
		hosts = append(hosts, c.MemberHost(i))
	}
	return hosts
}

// PeerURL returns the URL at which the other members reach a member of a managed etcd.
func (c *Component) PeerURL(i int32) string { return httpsURL(c.MemberHost(i), c.Storage.PeerPort) }

// ClientHost returns the host name that a managed etcd requires in the certificates of its clients. Only its owner,
// its own probes and kcpctl have it; other certificates of the etcd CA do not. It resolves to no address.
func (c *Component) ClientHost() string { return "client." + c.Host() }

// URLFrom returns the URL at which a component on a cluster dials c: its Service within one cluster, else its base URL.
func (c *Component) URLFrom(from Cluster) string {
	if c.Cluster.Local || from.Name != c.Cluster.Name {
		return c.URL
	}
	return httpsURL(c.Host(), c.ServicePort)
}

// URLs returns the URLs at which c itself is dialled. Some can be empty, or the same.
func (c *Component) URLs() []string {
	return []string{c.URL, c.ownExternalURL(), c.ownVirtualWorkspaceURL()}
}

// Hosts returns all DNS names and IP addresses at which c is dialled: the SANs of its serving certificate.
func (c *Component) Hosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if ns, svc := c.Cluster.Namespace, c.Object(); !c.Cluster.Local {
		hosts = append([]string{svc, svc + "." + ns, svc + "." + ns + ".svc", c.Host()}, hosts...)
	}
	hosts = append(hosts, c.aliasHosts()...)
	if c.Kind == Etcd {
		hosts = append(hosts, c.MemberHosts()...)
	}
	for _, u := range c.URLs() {
		if h := hostOf(u); h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// ownExternalURL is the external URL if the component serves it itself.
func (c *Component) ownExternalURL() string {
	if c.Kind == FrontProxy {
		return c.ExternalURL
	}
	return ""
}

// KeepsEmbeddedEtcd reports whether c has an embedded etcd whose data outlives its process.
func (c *Component) KeepsEmbeddedEtcd() bool {
	return c.Storage != nil && c.Storage.Embedded && !c.Storage.Ephemeral
}

// ownVirtualWorkspaceURL is the URL of virtual workspaces if the component serves them itself.
func (c *Component) ownVirtualWorkspaceURL() string {
	switch {
	case c.Custom != nil:
		return ""
	case c.Kind == VirtualWorkspaces:
		return c.URL
	case c.VirtualWorkspaces == "":
		return c.VirtualWorkspaceURL
	}
	return ""
}

// Local reports whether the components run as processes of this machine.
func (t *Topology) Local() bool { return t.Home.Local }

// Component returns the component with an ID, or nil.
func (t *Topology) Component(id ID) *Component { return t.byID[id] }

// OfKind returns the components of some kinds, in the order of Components.
func (t *Topology) OfKind(kinds ...Kind) []*Component {
	return t.that(func(k Kind) bool { return slices.Contains(kinds, k) })
}

// On returns the components on a cluster, in the order of Components.
func (t *Topology) On(cl Cluster) []*Component {
	return slices.DeleteFunc(slices.Clone(t.Components), func(c *Component) bool { return c.Cluster.Name != cl.Name })
}

// Running returns the components that are workloads.
func (t *Topology) Running() []*Component {
	return slices.DeleteFunc(t.that(Kind.Runs), func(c *Component) bool { return !c.Runs() })
}

// Idle returns the components of a kind that are only objects.
func (t *Topology) Idle(k Kind) []*Component {
	return slices.DeleteFunc(t.OfKind(k), (*Component).Runs)
}

// Servers returns the kcp servers.
func (t *Topology) Servers() []*Component { return t.that(Kind.Serves) }

// Shards returns the root shard and the other shards.
func (t *Topology) Shards() []*Component { return t.that(Kind.IsShard) }

// WorkspaceServer returns the component that serves a shard's virtual workspaces: a separate server, or the shard.
func (t *Topology) WorkspaceServer(shard *Component) *Component {
	if shard.VirtualWorkspaces != "" {
		return t.Component(shard.VirtualWorkspaces)
	}
	return shard
}

func (t *Topology) that(hold func(Kind) bool) []*Component {
	var out []*Component
	for _, c := range t.Components {
		if hold(c.Kind) {
			out = append(out, c)
		}
	}
	return out
}

// FrontProxies returns the front-proxies. Every setup has one.
func (t *Topology) FrontProxies() []*Component { return t.OfKind(FrontProxy) }

// Root returns the root shard.
func (t *Topology) Root() *Component { return t.byID[ID(RootShard)] }

// Cache returns the cache server, or nil if shards use the cache that is embedded in the root shard.
func (t *Topology) Cache() *Component { return t.byID[ID(CacheServer)] }

// CacheHolder returns the component that serves the cache: the cache server or the root shard.
func (t *Topology) CacheHolder() *Component {
	if cache := t.Cache(); cache != nil {
		return cache
	}
	return t.Root()
}

// Object returns the name of an object that belongs to the setup as a whole, such as the bundles of its authorities.
func (t *Topology) Object(parts ...string) string { return Object(t.Name, Base, "", parts...) }

func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func httpsURL(host string, port int32) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// HostPort returns the host and port that a URL leads to. It is empty for an invalid URL.
func HostPort(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// Package topology turns a setup into its components: every name, host, port, URL, path, placement and dependency is
// decided here, once. It is pure.
package topology

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Topology is a setup taken apart.
type Topology struct {
	// Setup is the setup with all its defaults.
	Setup *v1alpha1.Setup
	// Name is the setup's name.
	Name string
	// Home is the cluster of the root shard, where the setup's state is kept.
	Home Cluster
	// Clusters are the clusters that components are placed on, in the order of the setup file.
	Clusters []Cluster
	// Components are all components, each after those that it needs.
	Components []*Component
	// Local is set when the components run as processes of this machine.
	Local bool

	byID map[ID]*Component
}

// Cluster is a Kubernetes cluster and a namespace in it.
type Cluster struct {
	Name       string
	Context    string
	Kubeconfig string
	Namespace  string
	Domain     string
}

// Component is one deployable part of a setup.
type Component struct {
	Kind  Kind
	Name  string
	Setup string
	// Cluster is where it is placed.
	Cluster Cluster
	// Needs are the components that must be ready before it is, and before it is changed.
	Needs []ID
	// Awaits are those of Needs that the component's own process waits for: when it is new it starts before they are ready,
	// which saves the time that each spends waiting for itself.
	Awaits []ID

	// Version is the kcp release that it runs; flags depend on it.
	Version     string
	Image       string
	PullPolicy  corev1.PullPolicy
	PullSecrets []string
	Replicas    int32
	Resources   corev1.ResourceRequirements
	LogLevel    int32
	ExtraArgs   []string
	// PodTemplates and Services are laid over what is rendered, in this order.
	PodTemplates []v1alpha1.Overlay
	Services     []v1alpha1.Overlay

	// BindAddress is what its server listens on.
	BindAddress string
	// Port is where its server listens; for an etcd its client port.
	Port int32
	// ServicePort is the port of its Service.
	ServicePort int32
	// URL is its base URL: how other components reach it.
	URL string
	// ExternalURL is how clients reach kcp (shards), or this front-proxy.
	ExternalURL string
	// VirtualWorkspaceURL is where a shard's virtual workspaces are reached.
	VirtualWorkspaceURL string
	// ShardLabels are the labels of a shard in kcp.
	ShardLabels map[string]string
	// ConfigDir is the folder with the files it reads (see Files).
	ConfigDir string
	// DataDir is the folder that it keeps data in.
	DataDir string

	// Storage is what keeps the component's data. It is nil where the component keeps none.
	Storage *Storage
	// Serves is the shard that a virtual workspace server serves.
	Serves ID
	// VirtualWorkspaces is the server of a shard's virtual workspaces where they are not served by the shard itself.
	VirtualWorkspaces ID
	// FrontProxy is the front-proxy through which a shard reaches other shards' workspaces, and FrontProxyURL its URL
	// as this component dials it.
	FrontProxy    ID
	FrontProxyURL string
	// Access is what a kubeconfig gives access to.
	Access *Access
}

// Storage says where a component's data is kept: in an etcd, or in a volume that an etcd writes to.
type Storage struct {
	// Etcd is the managed etcd; Servers are its URLs, or those of an external one. Neither is set for an embedded one.
	Etcd    ID
	Servers []string
	Prefix  string
	// TLSSecret is the Secret with the client credentials of an external etcd.
	TLSSecret string
	// Embedded says that etcd runs inside the component's process; ClientPort and PeerPort are where it listens.
	Embedded             bool
	ClientPort, PeerPort int32
	// Size and Class describe the volume of an embedded or managed etcd; an Ephemeral one dies with its pod.
	Size      string
	Class     string
	Ephemeral bool
}

// Access describes a kubeconfig.
type Access struct {
	// Target is the front-proxy or shard that it dials; URL is its address.
	Target ID
	URL    string
	v1alpha1.Kubeconfig
}

// ID returns the component's name within its setup.
func (c *Component) ID() ID { return IDOf(c.Kind, c.Name) }

// Object returns the name of an object of c: Object() is its workload and Service.
func (c *Component) Object(parts ...string) string { return Object(c.Setup, c.Kind, c.Name, parts...) }

// ShardName is the name that a shard has in kcp.
func (c *Component) ShardName() string {
	if c.Kind == RootShard {
		return RootShardName
	}
	return c.Name
}

// IsShard tells whether c is the root shard or another shard.
func (c *Component) IsShard() bool { return c.Kind == RootShard || c.Kind == Shard }

// Proxied tells whether front-proxies hand requests on to c.
func (c *Component) Proxied() bool { return c.IsShard() || c.Kind == VirtualWorkspaces }

// Path returns the absolute path of one of the component's Files.
func (c *Component) Path(file string) string { return path.Join(c.ConfigDir, file) }

// Host is the DNS name of the component's Service within its cluster.
func (c *Component) Host() string {
	return fmt.Sprintf("%s.%s.svc.%s", c.Object(), c.Cluster.Namespace, c.Cluster.Domain)
}

// MemberHost is the DNS name of a member of a managed etcd.
func (c *Component) MemberHost(i int32) string {
	return fmt.Sprintf("%s.%s.%s.svc.%s", c.Member(i), c.Object(PeerService), c.Cluster.Namespace, c.Cluster.Domain)
}

// ClientHost is the name that a managed etcd looks for in the certificate of whatever connects to its client port: its
// owner, its own probes and kcpctl have it, and nothing else that the etcd CA has signed. It resolves to no address.
func (c *Component) ClientHost() string { return "client." + c.Host() }

// The parts of the names of a managed etcd's further objects.
const (
	// PeerService is the headless Service.
	PeerService = "peers"
	// MembersConfig is the ConfigMap with what a member without data starts with, and JoinConfig another that replaces
	// parts of it: it is there while a member is replaced.
	MembersConfig = "members"
	JoinConfig    = "join"
)

// PeerURL is the URL at which the other members reach a member of a managed etcd.
func (c *Component) PeerURL(i int32) string { return httpsURL(c.MemberHost(i), c.Storage.PeerPort) }

// Member is the name of a member of a managed etcd, and of its pod.
func (c *Component) Member(i int32) string { return fmt.Sprintf("%s-%d", c.Object(), i) }

// Hosts are the DNS names and IP addresses under which anybody dials the component: the SANs of its serving certificate.
func (c *Component) Hosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if ns, svc := c.Cluster.Namespace, c.Object(); ns != "" {
		hosts = append([]string{svc, svc + "." + ns, svc + "." + ns + ".svc", c.Host()}, hosts...)
	}
	for i := int32(0); c.Kind == Etcd && i < c.Replicas; i++ {
		hosts = append(hosts, c.MemberHost(i))
	}
	for _, u := range []string{c.URL, c.ownExternalURL(), c.ownVirtualWorkspaceURL()} {
		if h := hostOf(u); h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// ownExternalURL is the external URL if the component itself serves it.
func (c *Component) ownExternalURL() string {
	if c.Kind == FrontProxy {
		return c.ExternalURL
	}
	return ""
}

// ownVirtualWorkspaceURL is the virtual workspace URL if the component itself serves it.
func (c *Component) ownVirtualWorkspaceURL() string {
	if c.VirtualWorkspaces == "" {
		return c.VirtualWorkspaceURL
	}
	return ""
}

// Component returns the component with an ID, or nil.
func (t *Topology) Component(id ID) *Component { return t.byID[id] }

// OfKind returns the components of some kinds, in order.
func (t *Topology) OfKind(kinds ...Kind) []*Component {
	var out []*Component
	for _, c := range t.Components {
		if slices.Contains(kinds, c.Kind) {
			out = append(out, c)
		}
	}
	return out
}

// Shards returns the root shard and the others.
func (t *Topology) Shards() []*Component { return t.OfKind(RootShard, Shard) }

// Root returns the root shard.
func (t *Topology) Root() *Component { return t.byID[ID(RootShard)] }

// Cache returns the cache server, or nil where the root shard's embedded one serves.
func (t *Topology) Cache() *Component { return t.byID[ID(CacheServer)] }

// CacheHolder returns what serves the cache: the cache server, or the root shard.
func (t *Topology) CacheHolder() *Component {
	if cache := t.Cache(); cache != nil {
		return cache
	}
	return t.Root()
}

// Object returns the name of an object that belongs to the setup as a whole, such as its CA bundles or its PKI.
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

// HostPort returns the host and port that a URL leads to, or nothing if it is none.
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

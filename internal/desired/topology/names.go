package topology

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// ID names a component within its setup, as users see and type it: root-shard, shard/alpha, etcd/root.
type ID string

// IDOf returns the ID of the component with a kind and a name. The base of this machine has no name.
func IDOf(k Kind, name string) ID {
	if k.Singleton() || name == "" {
		return ID(k)
	}
	return ID(string(k) + "/" + name)
}

// ShardID returns the ID of the shard with a name in kcp.
func ShardID(name string) ID {
	if name == RootShardName {
		return ID(RootShard)
	}
	return IDOf(Shard, name)
}

// Kind returns the kind that the ID begins with.
func (id ID) Kind() Kind {
	k, _, _ := strings.Cut(string(id), "/")
	return Kind(k)
}

// Name returns the part after the kind. It is empty for a component of a singleton kind.
func (id ID) Name() string {
	_, name, _ := strings.Cut(string(id), "/")
	return name
}

// ShortName names the component in one word: alpha for shard/alpha, root for the root shard. It is the name of a shard
// in kcp, and the name of the component's managed etcd.
func (id ID) ShortName() string { return cmp.Or(id.Kind().traits().only, id.Name()) }

// EtcdID returns the ID of the component's managed etcd.
func (id ID) EtcdID() ID { return IDOf(Etcd, id.ShortName()) }

// EtcdOwner returns the ID of the component that stores its data in a managed etcd.
func (id ID) EtcdOwner() ID {
	i := slices.IndexFunc(kinds, func(t traits) bool { return t.only != "" && t.only == id.Name() })
	if i >= 0 {
		return ID(kinds[i].kind)
	}
	return IDOf(Shard, id.Name())
}

// FileName returns the name of the directory of a component or of a workspace: shard-alpha for shard/alpha, root.team-a
// for root:team-a. Neither kcp's names nor the names of the setup have dots.
func FileName(of string) string { return strings.NewReplacer("/", "-", ":", ".").Replace(of) }

// Object returns the name of an object of a component: Object(setup, k, name) is its workload and its Service,
// Object(setup, k, name, "server") the Secret with its serving certificate.
func Object(setup string, k Kind, name string, parts ...string) string {
	t := k.traits()
	all := []string{setup}
	if k != Base {
		all = append(all, cmp.Or(t.stem, t.only, string(k)))
	}
	if k != Base && t.only == "" {
		all = append(all, name)
	}
	return strings.Join(append(all, parts...), "-")
}

// The last parts of the names of a component's objects, besides its certificates.
const (
	// PeerService is the headless Service of a managed etcd.
	PeerService = "peers"
	// MembersConfig is the ConfigMap with the settings with which a member without data starts. JoinConfig is another
	// ConfigMap, which overrides some of them; it exists only while a member is replaced.
	MembersConfig = "members"
	JoinConfig    = "join"
	// KubeconfigsPart is the Secret with the kubeconfigs that a component uses.
	KubeconfigsPart = "kubeconfigs"
	// ServicePart is the Secret with the credential of an agent on this machine for the cluster whose APIs it
	// publishes.
	ServicePart = "service-cluster"
	// TokenPart is the ServiceAccount on a physical cluster of a syncer that runs elsewhere, and with --local the
	// Secret with its token. A syncer that runs in its cluster has another one: its mode can change.
	TokenPart = "token"
	// ConfigPart is the ConfigMap with the configuration files of a front-proxy or a shard.
	ConfigPart = "config"
	// DashboardPart is the ConfigMap with the dashboard for Grafana.
	DashboardPart = "dashboard"
	// DataPart is the PersistentVolumeClaim of a component with an embedded etcd.
	DataPart = "data"
)

// The last parts of the names of the objects that belong to the setup as a whole.
const (
	// CAPart is the ConfigMap with the bundles of all authorities.
	CAPart = "ca"
	// ServiceAccountPart is the Secret with the keys of service accounts.
	ServiceAccountPart = "service-account"
	// EncryptionPart is the Secret with the keys with which shards encrypt objects in etcd.
	EncryptionPart = "encryption"
	// InventoryPart is the Secret that records what was applied to a cluster.
	InventoryPart = "inventory"
)

// MappedPaths are the paths that every front-proxy maps to shards. A front-proxy answers ServedPaths itself (kcp:
// pkg/proxy/server.go, pkg/proxy/mapping.go).
var (
	MappedPaths = []string{"/clusters/", "/services/"}
	ServedPaths = []string{"/livez", "/metrics", "/readyz"}
)

// MappedPaths returns the paths for which front-proxies send requests to c.
func (c *Component) MappedPaths() []string {
	switch {
	case c.Custom == nil:
		return MappedPaths
	case c.Custom.Path == "":
		return nil
	}
	return []string{c.Custom.Path}
}

// Directories below a component's configuration directory.
const (
	dirPKI            = "pki"
	dirCA             = "ca"
	dirKubeconfig     = "kubeconfig"
	dirServiceAccount = "service-account"
	dirEncryption     = "encryption"
	dirEtcd           = "etcd"
	dirConfig         = "config"
)

// Files names the files that a component reads, relative to its configuration directory. Pods mount them there; on this
// machine they are written there.
type Files struct{}

// Cert returns the file of a certificate of the component.
func (Files) Cert(name string) string { return path.Join(dirPKI, name, "tls.crt") }

// Key returns the file of the private key that belongs to Cert(name).
func (Files) Key(name string) string { return path.Join(dirPKI, name, "tls.key") }

// External returns a file of the certificate that a front-proxy serves for its external hostname: tls.crt or tls.key.
func (Files) External(name string) string { return path.Join(dirPKI, "external", name) }

// CA returns the file with the bundle of a certificate authority.
func (Files) CA(ca CA) string { return path.Join(dirCA, string(ca)+".crt") }

// Kubeconfig returns the file of a kubeconfig that the component uses.
func (Files) Kubeconfig(name string) string { return path.Join(dirKubeconfig, name+".kubeconfig") }

// Token returns the path of the token to which a kubeconfig refers.
func (Files) Token(name string) string { return path.Join(dirKubeconfig, TokenFile(name)) }

// TokenFile returns the name of the token's file, in the directory of the kubeconfig.
func TokenFile(name string) string { return name + ".token" }

// ServiceAccount returns a file of the service-account key pair.
func (Files) ServiceAccount(name string) string { return path.Join(dirServiceAccount, name) }

// Encryption returns the file with the configuration and the keys with which a shard encrypts objects in etcd.
func (Files) Encryption() string { return path.Join(dirEncryption, "config.yaml") }

// ExternalEtcd returns a file of the client credentials for an external etcd: ca.crt, tls.crt or tls.key.
func (Files) ExternalEtcd(name string) string { return path.Join(dirEtcd, name) }

// Config returns another file of the component's configuration.
func (Files) Config(name string) string { return path.Join(dirConfig, name) }

package topology

import (
	"path"
	"strings"
)

// Kind is a kind of component. Its value is the first part of a component's ID.
type Kind string

// The kinds of components, in the order in which they come up.
const (
	Base              Kind = "base"
	Etcd              Kind = "etcd"
	CacheServer       Kind = "cache-server"
	RootShard         Kind = "root-shard"
	Shard             Kind = "shard"
	FrontProxy        Kind = "front-proxy"
	VirtualWorkspaces Kind = "virtual-workspaces"
	Kubeconfig        Kind = "kubeconfig"
)

// RootShardName is the name that kcp fixes for the root shard (kcp: pkg/apis/core/v1alpha1, RootShard).
const RootShardName = "root"

// CacheName stands for the cache server where a component is named by a single word, as its etcd is.
const CacheName = "cache"

// Port is where every kcp server of a Kubernetes cluster listens.
const Port = 6443

// ID names a component within its setup, as users see and type it: root-shard, shard/alpha, etcd/root.
type ID string

// singletons are the kinds of which a setup has at most one.
func (k Kind) singleton() bool { return k == RootShard || k == CacheServer }

// IDOf returns the ID of the component of a kind and name. The base of this machine has no name.
func IDOf(k Kind, name string) ID {
	if k.singleton() || name == "" {
		return ID(k)
	}
	return ID(string(k) + "/" + name)
}

// Kind returns the kind that the ID begins with.
func (id ID) Kind() Kind {
	k, _, _ := strings.Cut(string(id), "/")
	return Kind(k)
}

// Name returns what follows the kind: nothing for a component of which a setup has one.
func (id ID) Name() string {
	_, name, _ := strings.Cut(string(id), "/")
	return name
}

// stem is what a component's objects are called after, following the setup's name.
func stem(k Kind, name string) string {
	switch k {
	case Base:
		return ""
	case CacheServer:
		return "-cache"
	case RootShard:
		return "-root"
	case VirtualWorkspaces:
		return "-vw-" + name
	}
	return "-" + string(k) + "-" + name
}

// Object returns the name of an object of a component: Object(setup, k, name) is its workload and Service,
// Object(setup, k, name, "server") its serving certificate's Secret.
func Object(setup string, k Kind, name string, parts ...string) string {
	return strings.Join(append([]string{setup + stem(k, name)}, parts...), "-")
}

// The folders below a component's configuration folder.
const (
	dirPKI            = "pki"
	dirCA             = "ca"
	dirKubeconfig     = "kubeconfig"
	dirServiceAccount = "service-account"
	dirEtcd           = "etcd"
	dirConfig         = "config"
)

// Files names the files that a component reads, relative to its configuration folder. Pods mount them there;
// the local runtime writes them there.
type Files struct{}

// Cert is a certificate of the component.
func (Files) Cert(name string) string { return path.Join(dirPKI, name, "tls.crt") }

// Key is the private key that belongs to Cert(name).
func (Files) Key(name string) string { return path.Join(dirPKI, name, "tls.key") }

// CA is the bundle of a certificate authority: server, client, requestheader or etcd.
func (Files) CA(name string) string { return path.Join(dirCA, name+".crt") }

// Kubeconfig is a kubeconfig that the component uses.
func (Files) Kubeconfig(name string) string { return path.Join(dirKubeconfig, name+".kubeconfig") }

// ServiceAccount is a file of the service-account key pair.
func (Files) ServiceAccount(name string) string { return path.Join(dirServiceAccount, name) }

// ExternalEtcd is a file of the client credentials of an external etcd: ca.crt, tls.crt or tls.key.
func (Files) ExternalEtcd(name string) string { return path.Join(dirEtcd, name) }

// Config is another file of the component's configuration.
func (Files) Config(name string) string { return path.Join(dirConfig, name) }

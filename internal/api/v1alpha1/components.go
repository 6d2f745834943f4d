package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Components returns the servers of kcp in a setup.
func (s *Spec) Components() []*Component {
	out := []*Component{&s.RootShard.Component}
	if s.CacheServer != nil {
		out = append(out, &s.CacheServer.Component)
	}
	for i := range s.Shards {
		out = append(out, &s.Shards[i].Component)
	}
	for i := range s.FrontProxies {
		out = append(out, &s.FrontProxies[i].Component)
	}
	for i := range s.VirtualWorkspaces {
		out = append(out, &s.VirtualWorkspaces[i].Component)
	}
	return out
}

// CacheServer replicates objects between shards.
type CacheServer struct {
	Component `json:",inline"`
	// Etcd stores the cache. Before kcp v0.31.0, it must be embedded. Default: embedded and ephemeral, because the
	// shards can rewrite the cache.
	Etcd *Etcd `json:"etcd,omitempty"`
	// URL is the address for components on other clusters, such as https://cache.example.com:6443, or auto (see
	// Expose).
	URL string `json:"url,omitempty"`
}

// RootShard is the shard with the root workspace.
type RootShard struct {
	ShardSpec `json:",inline"`
}

// Shard is a shard other than the root shard.
type Shard struct {
	// Name is the name of the shard in kcp: a DNS label other than root.
	Name      string `json:"name"`
	ShardSpec `json:",inline"`
}

// ShardSpec contains the fields of the root shard and of all other shards.
type ShardSpec struct {
	Component `json:",inline"`
	// Etcd stores the data of the shard. Default: spec.etcd.
	Etcd *Etcd `json:"etcd,omitempty"`
	// URL is the base URL of the shard, the address for other shards and front-proxies, or auto (see Expose). Default:
	// its Service.
	URL string `json:"url,omitempty"`
	// VirtualWorkspaceURL is the address of the shard's virtual workspaces for clients. It must not be set if a server
	// in spec.virtualWorkspaces serves them: url of this server is the address then. Default: the base URL.
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL,omitempty"`
	// FrontProxy is the name of the front-proxy through which this shard reaches the workspaces of other shards. It
	// must accept client certificates. Default: the first such front-proxy on the cluster of the shard, or the first
	// one at all.
	FrontProxy string `json:"frontProxy,omitempty"`
	// Audit records the requests to this shard and its virtual workspaces. Default: spec.audit.
	Audit *Audit `json:"audit,omitempty"`
	// Authorization configures how this shard authorizes requests. Default: spec.authorization.
	Authorization *Authorization `json:"authorization,omitempty"`
	// Labels are set on the Shard object in kcp, in addition to the label name. Workspaces select shards by them.
	Labels map[string]string `json:"labels,omitempty"`
}

// FrontProxy is a server for clients. It forwards requests to the shard of their workspace.
type FrontProxy struct {
	// Name is a DNS label.
	Name      string `json:"name"`
	Component `json:",inline"`
	// Autoscaling adds and removes replicas by their use of CPU. It cannot be combined with replicas. It is ignored
	// with --local. Default: no autoscaler.
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`
	// External is the address of this front-proxy for clients. Default: spec.external for the first front-proxy, else
	// its Service.
	External External `json:"external,omitzero"`
	// Authentication configures how this front-proxy authenticates its clients. Default: spec.authentication.
	Authentication FrontProxyAuthentication `json:"authentication,omitzero"`
	// Serving is a certificate of your own for the external hostname. Default: the certificate of the setup.
	Serving *Serving `json:"serving,omitempty"`
	// PathMappings send requests for other paths than /clusters/ and /services/ to other servers.
	PathMappings []PathMapping `json:"pathMappings,omitempty"`
}

// VirtualWorkspace is a separate server for the virtual workspaces of a shard: the server of kcp, or your own server
// beside it.
type VirtualWorkspace struct {
	// Name is a DNS label.
	Name      string `json:"name"`
	Component `json:",inline"`
	// Command starts your own server: the path of its binary in image.repository, and its first arguments. It must
	// accept the flags of kcp's virtual-workspaces. It does not replace the server of the shard's virtual workspaces.
	// With --local, the binary must be in --kcp-bin-dir. Default: the server of kcp.
	Command []string `json:"command,omitempty"`
	// Path is the beginning of the paths for which front-proxies send requests to your own server, such as
	// /services/example/. Default: they send none.
	Path string `json:"path,omitempty"`
	// KubeconfigSecret is a Secret whose key kubeconfig has the only kubeconfig of your own server. Default: the server
	// is an administrator of its shard, as the server of kcp is.
	KubeconfigSecret string `json:"kubeconfigSecret,omitempty"`
	// Shard is the name of the shard. The name of the root shard is root. Default: root.
	Shard string `json:"shard,omitempty"`
	// URL is its address for clients, or auto (see Expose). Default: its Service.
	URL string `json:"url,omitempty"`
	// FrontProxy is the name of the front-proxy through which it reaches the workspaces of other shards. It must accept
	// client certificates. Default: the first such front-proxy on its cluster, or the first one at all.
	FrontProxy string `json:"frontProxy,omitempty"`
}

// Custom reports whether the server is a server of the user.
func (v *VirtualWorkspace) Custom() bool { return len(v.Command) > 0 }

// Kubeconfig is a kubeconfig for kcp with a client certificate.
type Kubeconfig struct {
	// Name is a DNS label. It is part of the name of the Secret.
	Name string `json:"name"`
	// Target is the server that the kubeconfig connects to. Default: the first front-proxy that accepts client
	// certificates.
	Target Target `json:"target,omitzero"`
	// User is the common name of the certificate. Default: the name.
	User string `json:"user,omitempty"`
	// Groups are the organizations of the certificate.
	Groups []string `json:"groups,omitempty"`
	// Workspace is the workspace of the current context. Default: root.
	Workspace string `json:"workspace,omitempty"`
	// Validity is the lifetime of the certificate, at most caValidity. Default: 8766h.
	Validity metav1.Duration `json:"validity,omitzero"`
	// ClusterRoles are bound to the user in the workspace. up deletes the binding of a role that is removed, and all of
	// them with the kubeconfig.
	ClusterRoles []string `json:"clusterRoles,omitempty"`
}

// Target is either a front-proxy or a shard.
type Target struct {
	// FrontProxy is the name of a front-proxy.
	FrontProxy string `json:"frontProxy,omitempty"`
	// Shard is the name of a shard. The name of the root shard is root.
	Shard string `json:"shard,omitempty"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CacheServer replicates objects between shards.
type CacheServer struct {
	Component `json:",inline"`
	// Etcd holds the cache. Default: embedded and ephemeral; the shards write the cache again.
	Etcd *Etcd `json:"etcd,omitempty"`
	// URL is how components on other clusters reach it, such as https://cache.example.com:6443.
	URL string `json:"url,omitempty"`
}

// RootShard is the shard that holds the root workspace.
type RootShard struct {
	ShardSpec `json:",inline"`
}

// Shard is a shard besides the root shard.
type Shard struct {
	// Name is the shard's name in kcp: a DNS label, but not root.
	Name      string `json:"name"`
	ShardSpec `json:",inline"`
}

// ShardSpec is what the root shard and the others have in common.
type ShardSpec struct {
	Component `json:",inline"`
	// Etcd holds the shard's data. Default: spec.etcd.
	Etcd *Etcd `json:"etcd,omitempty"`
	// URL is the shard's base URL, how other shards and front-proxies reach it. Default: its Service.
	URL string `json:"url,omitempty"`
	// VirtualWorkspaceURL is where clients reach the shard's virtual workspaces. Default: the base URL, or the one of the
	// virtual workspace server that serves this shard.
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL,omitempty"`
	// Labels are set on the Shard object in kcp, in addition to the label name. Workspaces select shards by them.
	Labels map[string]string `json:"labels,omitempty"`
}

// FrontProxy is what clients talk to.
type FrontProxy struct {
	// Name is a DNS label.
	Name      string `json:"name"`
	Component `json:",inline"`
	// External is what clients of this front-proxy dial. Default: spec.external for the first one, else its Service.
	External External `json:"external,omitzero"`
}

// VirtualWorkspace is a server of a shard's virtual workspaces.
type VirtualWorkspace struct {
	// Name is a DNS label.
	Name      string `json:"name"`
	Component `json:",inline"`
	// Shard is the name of the shard it serves; root is the root shard. Default: root.
	Shard string `json:"shard,omitempty"`
	// URL is how clients reach it. Default: its Service.
	URL string `json:"url,omitempty"`
}

// Kubeconfig is a credential for kcp.
type Kubeconfig struct {
	// Name is a DNS label; the Secret is called after it.
	Name string `json:"name"`
	// Target is what it connects to. Default: the first front-proxy.
	Target Target `json:"target,omitzero"`
	// User is the certificate's common name. Default: the name.
	User string `json:"user,omitempty"`
	// Groups are the certificate's organizations.
	Groups []string `json:"groups,omitempty"`
	// Workspace is the path of the current context. Default: root.
	Workspace string `json:"workspace,omitempty"`
	// Validity is how long the certificate is valid, at most caValidity. Default: 8766h.
	Validity metav1.Duration `json:"validity,omitzero"`
	// ClusterRoles are bound to the user in the workspace.
	ClusterRoles []string `json:"clusterRoles,omitempty"`
}

// Target is one of a front-proxy and a shard.
type Target struct {
	// FrontProxy is the name of a front-proxy.
	FrontProxy string `json:"frontProxy,omitempty"`
	// Shard is the name of a shard; root is the root shard.
	Shard string `json:"shard,omitempty"`
}

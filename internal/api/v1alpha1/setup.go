package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Setup is one kcp installation: a root shard, any number of further shards and front-proxies, and what they need.
type Setup struct {
	// APIVersion is kcpctl.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Kind is Setup.
	Kind string `json:"kind"`
	// Metadata names the setup.
	Metadata Metadata `json:"metadata"`
	// Spec describes the installation. Everything in it has a default.
	Spec Spec `json:"spec,omitzero"`
}

// Metadata names a setup.
type Metadata struct {
	// Name is the prefix of every object of the setup: a DNS label.
	Name string `json:"name"`
}

// Spec describes a kcp installation.
type Spec struct {
	// Version is the kcp release, such as v0.32.3. It is the image tag and decides the flags that are set. Default: v0.32.3.
	Version string `json:"version,omitempty"`
	// Image is the kcp image of every component.
	Image Image `json:"image,omitzero"`
	// External is what clients dial. Default: the first front-proxy's Service name and port 6443.
	External External `json:"external,omitzero"`
	// Clusters are the Kubernetes clusters that components are placed on. Default: one, called default, from the
	// current kubeconfig context.
	Clusters []Cluster `json:"clusters,omitempty"`
	// PKI says how certificates are made and where their authorities' keys live.
	PKI PKI `json:"pki,omitzero"`
	// Defaults lie under every component except etcd; what a component says itself wins.
	Defaults Defaults `json:"defaults,omitzero"`
	// Etcd is the default etcd of each shard.
	Etcd Etcd `json:"etcd,omitzero"`
	// CacheServer is a cache server of its own for all shards. Default: the root shard's embedded one.
	CacheServer *CacheServer `json:"cacheServer,omitempty"`
	// RootShard is the shard that holds the root workspace. kcp fixes its name: root.
	RootShard RootShard `json:"rootShard,omitzero"`
	// Shards are the shards besides the root shard.
	Shards []Shard `json:"shards,omitempty"`
	// FrontProxies are what clients talk to. Default: one, called main.
	FrontProxies []FrontProxy `json:"frontProxies,omitempty"`
	// VirtualWorkspaces are servers that take the virtual workspaces out of a shard's own process.
	VirtualWorkspaces []VirtualWorkspace `json:"virtualWorkspaces,omitempty"`
	// Kubeconfigs are credentials that up keeps as Secrets. Default: one, called admin, for the first front-proxy.
	Kubeconfigs []Kubeconfig `json:"kubeconfigs,omitempty"`
}

// Image is a container image and how it is pulled.
type Image struct {
	// Repository is the image without tag and digest. Default: ghcr.io/kcp-dev/kcp.
	Repository string `json:"repository,omitempty"`
	// Tag is the image's tag. Default: spec.version.
	Tag string `json:"tag,omitempty"`
	// Digest pins the image, such as sha256:…; it wins over the tag.
	Digest string `json:"digest,omitempty"`
	// PullPolicy is Always, IfNotPresent or Never. Default: IfNotPresent.
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`
	// PullSecrets are the names of Secrets with registry credentials. They must exist in every namespace of the setup.
	PullSecrets []string `json:"pullSecrets,omitempty"`
}

// External is the address under which clients reach kcp.
type External struct {
	// Hostname is a DNS name or an IP address.
	Hostname string `json:"hostname,omitempty"`
	// Port is 1 to 65535. Default: 6443.
	Port int32 `json:"port,omitempty"`
}

// Cluster is a Kubernetes cluster and a namespace in it.
type Cluster struct {
	// Name is what components refer to: a DNS label.
	Name string `json:"name"`
	// Context is a kubeconfig context. Default: the current one.
	Context string `json:"context,omitempty"`
	// Kubeconfig is the path of a kubeconfig file. Default: as kubectl finds it.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Namespace holds every object that is placed on this cluster. Default: kcp.
	Namespace string `json:"namespace,omitempty"`
	// Domain is the DNS domain of the cluster's Services. Default: cluster.local.
	Domain string `json:"domain,omitempty"`
}

// PKIStore is where the certificate authorities' keys are kept.
type PKIStore string

const (
	// PKIStoreCluster keeps them in a Secret of the root shard's namespace that no pod mounts.
	PKIStoreCluster PKIStore = "Cluster"
	// PKIStoreDirectory keeps them, and every leaf certificate, in files with mode 0600.
	PKIStoreDirectory PKIStore = "Directory"
)

// KeyAlgorithm is the kind of private key that new certificates get.
type KeyAlgorithm string

// The key algorithms that kcp and its clients accept.
const (
	KeyECDSAP256 KeyAlgorithm = "ECDSA-P256"
	KeyECDSAP384 KeyAlgorithm = "ECDSA-P384"
	KeyRSA2048   KeyAlgorithm = "RSA-2048"
	KeyRSA4096   KeyAlgorithm = "RSA-4096"
)

// PKI says how certificates are made.
type PKI struct {
	// Store is Cluster or Directory. Default: Cluster.
	Store PKIStore `json:"store,omitempty"`
	// Directory is the folder of the store Directory, relative to the setup file. Default: pki.
	Directory string `json:"directory,omitempty"`
	// KeyAlgorithm is ECDSA-P256, ECDSA-P384, RSA-2048 or RSA-4096. Default: ECDSA-P256.
	KeyAlgorithm KeyAlgorithm `json:"keyAlgorithm,omitempty"`
	// CAValidity is how long a certificate authority is valid. Default: 87600h.
	CAValidity metav1.Duration `json:"caValidity,omitzero"`
	// CertificateValidity is how long a certificate of a component is valid, at most caValidity. Default: 8760h.
	CertificateValidity metav1.Duration `json:"certificateValidity,omitzero"`
}

// Overlay is a part of a Kubernetes object that is laid over the rendered one by strategic merge.
type Overlay map[string]any

// Defaults lie under every component except etcd.
type Defaults struct {
	// Replicas of each component. Default: 1.
	Replicas *int32 `json:"replicas,omitempty"`
	// Resources of each component's container. Default: small requests that fit the kind, no limits.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate is a partial PodTemplateSpec.
	PodTemplate Overlay `json:"podTemplate,omitempty"`
	// Service is a partial ServiceSpec, and metadata.
	Service Overlay `json:"service,omitempty"`
	// LogLevel is kcp's -v, 0 to 10. Default: 2.
	LogLevel *int32 `json:"logLevel,omitempty"`
	// ExtraArgs are flags such as --name=value: each replaces the flag of that name which kcpctl would set, or is added.
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// Component is what every component but etcd has.
type Component struct {
	// Cluster is the name of the cluster it is placed on. Default: the root shard's, or the first of spec.clusters.
	Cluster string `json:"cluster,omitempty"`
	// Image replaces parts of spec.image.
	Image    Image `json:"image,omitzero"`
	Defaults `json:",inline"`
}

// Etcd is one of managed, external or embedded.
type Etcd struct {
	// Managed is an etcd that kcpctl runs beside the shard.
	Managed *ManagedEtcd `json:"managed,omitempty"`
	// External is an etcd that exists already.
	External *ExternalEtcd `json:"external,omitempty"`
	// Embedded is an etcd inside the component's own process. It allows a single replica.
	Embedded *EmbeddedEtcd `json:"embedded,omitempty"`
}

// ManagedEtcd is an etcd that kcpctl runs, with TLS for clients and peers.
type ManagedEtcd struct {
	// Replicas is the number of members: 1 or 3. Default: 1.
	Replicas *int32 `json:"replicas,omitempty"`
	// Image is etcd's image, with etcd and etcdctl in its PATH. Default: the one this release of kcpctl was tested with.
	Image string `json:"image,omitempty"`
	// Storage is the size of each member's volume. Default: 8Gi.
	Storage *resource.Quantity `json:"storage,omitempty"`
	// StorageClassName is the class of the volumes. Default: the cluster's default class.
	StorageClassName string `json:"storageClassName,omitempty"`
	// Ephemeral keeps the data in the pod: it is lost with the pod. For tests.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Resources of the etcd container. Default: small requests, no limits.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate is a partial PodTemplateSpec.
	PodTemplate Overlay `json:"podTemplate,omitempty"`
	// ExtraArgs are flags of etcd, such as --quota-backend-bytes=8589934592.
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// ExternalEtcd is an etcd that exists already.
type ExternalEtcd struct {
	// Endpoints are URLs such as https://etcd.example.com:2379; those of spec.etcd where a shard gives none.
	Endpoints []string `json:"endpoints"`
	// Prefix is put before every key. Default: /<installation>/<shard>, where <installation> is the ID that the first up makes,
	// so that shards, and several installations, can share one etcd. A cache server has none: kcp fixes its prefix; nor has
	// spec.etcd, because each shard needs its own.
	Prefix string `json:"prefix,omitempty"`
	// TLSSecret is the name of a Secret with ca.crt, tls.crt and tls.key. It is required for https endpoints.
	TLSSecret string `json:"tlsSecret,omitempty"`
}

// EmbeddedEtcd is an etcd inside the component's own process.
type EmbeddedEtcd struct {
	// Storage is the size of the volume that holds the data. Default: 8Gi.
	Storage *resource.Quantity `json:"storage,omitempty"`
	// StorageClassName is the class of the volume. Default: the cluster's default class.
	StorageClassName string `json:"storageClassName,omitempty"`
	// Ephemeral keeps the data in the pod: it is lost with the pod. Default: false, and true for a cache server, whose
	// content the shards write again.
	Ephemeral *bool `json:"ephemeral,omitempty"`
}

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Setup is a kcp installation: a root shard, any number of other shards and front-proxies, and their dependencies.
type Setup struct {
	// APIVersion is kcpctl.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Kind is Setup.
	Kind string `json:"kind"`
	// Metadata names the setup.
	Metadata Metadata `json:"metadata"`
	// Spec describes the installation. All fields have defaults.
	Spec Spec `json:"spec,omitzero"`
}

// Metadata names a setup.
type Metadata struct {
	// Name is the prefix of the names of all objects: a DNS label.
	Name string `json:"name"`
	// Installation is the ID of the installation that the file is for, such as demo-x7k2m9qd. Commands refuse any
	// other one, and kcpctl up creates it only with --new-installation. Without it, the file is for the installation
	// that its clusters have.
	Installation string `json:"installation,omitempty"`
}

// Spec describes a kcp installation.
type Spec struct {
	// Version is the kcp release, such as v0.32.3. It determines the image tag and the flags of kcp. Default: v0.32.3.
	Version string `json:"version,omitempty"`
	// Image is the kcp image of all components.
	Image Image `json:"image,omitzero"`
	// External is the address of kcp for clients. Default: the name of the first front-proxy's Service, and port 6443.
	External External `json:"external,omitzero"`
	// Clusters are the Kubernetes clusters of the components. Default: one cluster named default, with the current
	// kubeconfig context.
	Clusters []Cluster `json:"clusters,omitempty"`
	// PKI configures certificates and the storage of the private keys of their CAs.
	PKI PKI `json:"pki,omitzero"`
	// Authentication configures how kcp authenticates its clients.
	Authentication Authentication `json:"authentication,omitzero"`
	// Audit records the requests to all shards. A shard can have its own.
	Audit *Audit `json:"audit,omitempty"`
	// Authorization configures how shards authorize requests. A shard can have its own.
	Authorization *Authorization `json:"authorization,omitempty"`
	// Encryption encrypts objects in the etcds of all shards.
	Encryption *Encryption `json:"encryption,omitempty"`
	// HomeWorkspaces configures the workspaces of users.
	HomeWorkspaces HomeWorkspaces `json:"homeWorkspaces,omitzero"`
	// Batteries are objects that kcp creates in the root workspace: workspace-types, metrics-viewer. Default:
	// workspace-types.
	Batteries []string `json:"batteries,omitempty"`
	// FeatureGates are feature gates of kcp: WorkspaceMounts: true. Each shard and each front-proxy has those that its
	// release knows. Front-proxies have them from v0.29.0 on. WorkspaceMounts must not be used together with shards
	// that are reached from outside of their cluster.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// CommonMetadata are labels and annotations of all objects on the clusters of the setup, such as Deployments,
	// Secrets and the namespaces that kcpctl creates. The metadata of a service overlay, and annotations in expose,
	// take precedence. Set labels and annotations of pods in podTemplate.
	CommonMetadata CommonMetadata `json:"commonMetadata,omitzero"`
	// NetworkPolicies restricts the network of kcp's pods, in clusters whose network plugin enforces NetworkPolicies.
	// Default: kcpctl creates none.
	NetworkPolicies *NetworkPolicies `json:"networkPolicies,omitempty"`
	// Monitoring lets a Prometheus read the metrics of the components. All shards need kcp v0.32.0.
	Monitoring *Monitoring `json:"monitoring,omitempty"`
	// Size is how many workspaces each shard is made for: small is 200, medium 1,000 and large 3,500. The resources of
	// kcp's servers and of managed etcds, and the quota and the storage of etcds, have defaults that fit. Volumes do
	// not grow: if the installation runs without a size, set the storage that it has, too. Default: no size.
	Size Size `json:"size,omitempty"`
	// Defaults are defaults for all components except etcd. Fields of a component take precedence.
	Defaults Defaults `json:"defaults,omitzero"`
	// Etcd is the default etcd of all shards.
	Etcd Etcd `json:"etcd,omitzero"`
	// CacheServer is a separate cache server for all shards. Default: the embedded cache server of the root shard.
	CacheServer *CacheServer `json:"cacheServer,omitempty"`
	// RootShard is the shard with the root workspace. Its name is always root.
	RootShard RootShard `json:"rootShard,omitzero"`
	// Shards are the other shards.
	Shards []Shard `json:"shards,omitempty"`
	// FrontProxies are the servers for clients. Default: one front-proxy named main.
	FrontProxies []FrontProxy `json:"frontProxies,omitempty"`
	// VirtualWorkspaces are separate servers for the virtual workspaces of shards. Without one, a shard serves its own.
	VirtualWorkspaces []VirtualWorkspace `json:"virtualWorkspaces,omitempty"`
	// Kubeconfigs are kubeconfigs for kcp that kcpctl up stores in Secrets. Default: one kubeconfig named admin, for
	// the first front-proxy that accepts client certificates.
	Kubeconfigs []Kubeconfig `json:"kubeconfigs,omitempty"`
	// Workspaces are workspaces in the root workspace, which kcpctl up applies when all shards serve.
	Workspaces []Workspace `json:"workspaces,omitempty"`
	// Agents publish APIs of clusters in workspaces.
	Agents []Agent `json:"agents,omitempty"`
	// Workloads runs Deployments of workspaces in physical clusters.
	Workloads *Workloads `json:"workloads,omitempty"`
	// TakeOver is the installation of kcp-operator that this setup takes over.
	TakeOver *TakeOver `json:"takeOver,omitempty"`
}

// Image is a container image and its pull policy.
type Image struct {
	// Repository is the name of the image, without tag and digest. Default: ghcr.io/kcp-dev/kcp.
	Repository string `json:"repository,omitempty"`
	// Tag is the tag of the image. Default: spec.version.
	Tag string `json:"tag,omitempty"`
	// Digest is the digest of the image, such as sha256:…. It takes precedence over the tag.
	Digest string `json:"digest,omitempty"`
	// PullPolicy is Always, IfNotPresent or Never. Default: IfNotPresent.
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`
	// PullSecrets are the names of Secrets with registry credentials. They must exist in all namespaces of the setup.
	PullSecrets []string `json:"pullSecrets,omitempty"`
}

// External is an address for clients.
type External struct {
	// Hostname is a DNS name, an IP address, or auto (see Expose).
	Hostname string `json:"hostname,omitempty"`
	// Port is between 1 and 65535. Default: 6443, or 443 behind an Ingress, a TLSRoute or a Route, or the node port
	// that Kubernetes chooses.
	Port int32 `json:"port,omitempty"`
}

// CommonMetadata are labels and annotations of objects.
type CommonMetadata struct {
	// Labels must not be those that kcpctl sets itself.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations must not be those that kcpctl sets itself.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Cluster is a Kubernetes cluster and a namespace.
type Cluster struct {
	// Name is the name that components refer to: a DNS label.
	Name string `json:"name"`
	// Context is a kubeconfig context. Default: the current context.
	Context string `json:"context,omitempty"`
	// Kubeconfig is the path to a kubeconfig file. Default: the kubeconfig that kubectl uses.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Namespace is the namespace of all objects on this cluster. Default: kcp.
	Namespace string `json:"namespace,omitempty"`
	// Domain is the DNS domain of the cluster. Default: cluster.local.
	Domain string `json:"domain,omitempty"`
	// As is the user to impersonate on this cluster, as with kubectl --as. The flag --as takes precedence.
	As string `json:"as,omitempty"`
	// AsGroups are the groups to impersonate together with as.
	AsGroups []string `json:"asGroups,omitempty"`
	// Region is the label region of the shards on this cluster, so that kubectl create workspace --location-selector
	// region=us selects them. The labels of a shard take precedence. Objects of front-proxies on this cluster get the
	// label topology.kubernetes.io/region.
	Region string `json:"region,omitempty"`
	// IPFamilyPolicy is the policy of all Services on this cluster: SingleStack, PreferDualStack or RequireDualStack.
	// Without it, Services have one family.
	IPFamilyPolicy corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`
	// IPFamilies are the families of all Services on this cluster, the primary one first: IPv4, IPv6. The primary one
	// of a running Service cannot be changed. Without them, Services have the family of the cluster.
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
	// Workspace is the path of a workspace, such as root:services, that takes the place of this cluster with --local:
	// agents publish the APIs of the workspace. Without it, agents on this machine publish the APIs of the cluster, if
	// context or kubeconfig is set. It has no effect without --local.
	Workspace string `json:"workspace,omitempty"`
}

// PKIStore is where the private keys of the CAs are stored.
type PKIStore string

const (
	// PKIStoreCluster stores them in a Secret in the namespace of the root shard. No pod mounts it.
	PKIStoreCluster PKIStore = "Cluster"
	// PKIStoreDirectory stores them, and all other certificates, in files with mode 0600.
	PKIStoreDirectory PKIStore = "Directory"
)

// KeyAlgorithm is the algorithm of new private keys.
type KeyAlgorithm string

// The key algorithms that kcp and its clients accept.
const (
	KeyECDSAP256 KeyAlgorithm = "ECDSA-P256"
	KeyECDSAP384 KeyAlgorithm = "ECDSA-P384"
	KeyRSA2048   KeyAlgorithm = "RSA-2048"
	KeyRSA4096   KeyAlgorithm = "RSA-4096"
)

// PKI configures certificates.
type PKI struct {
	// Store is where the private keys of the CAs are stored: Cluster or Directory. Default: Cluster.
	Store PKIStore `json:"store,omitempty"`
	// Directory is the directory of the store Directory, relative to the setup file. Default: pki.
	Directory string `json:"directory,omitempty"`
	// KeyAlgorithm is the algorithm of new private keys: ECDSA-P256, ECDSA-P384, RSA-2048 or RSA-4096. Default:
	// ECDSA-P256.
	KeyAlgorithm KeyAlgorithm `json:"keyAlgorithm,omitempty"`
	// CAValidity is the lifetime of CAs. Default: 87600h.
	CAValidity metav1.Duration `json:"caValidity,omitzero"`
	// CertificateValidity is the lifetime of component certificates, at most caValidity. Default: 8760h.
	CertificateValidity metav1.Duration `json:"certificateValidity,omitzero"`
}

// Overlay is a partial Kubernetes object. It is merged into the rendered object by strategic merge.
type Overlay map[string]any

// Defaults contains the fields that all components except etcd share.
type Defaults struct {
	// Replicas is the number of replicas, or null: then kcpctl does not set it, and leaves it to a
	// HorizontalPodAutoscaler or to kubectl scale. A new component has one. A component with an embedded etcd must have
	// one. Default: 1.
	Replicas Replicas `json:"replicas,omitempty"`
	// Resources are the resources of the container. Default: the resources of spec.size or, without a size, small
	// requests that depend on the kind of component, and no limits.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate is a partial PodTemplateSpec that is merged into the rendered one.
	PodTemplate Overlay `json:"podTemplate,omitempty"`
	// Service is a partial ServiceSpec, and metadata, that is merged into the rendered Service.
	Service        Overlay `json:"service,omitempty"`
	ServerSettings `json:",inline"`
	// ExtraArgs are additional flags such as --name=value. They replace flags of the same name that kcpctl sets, except
	// flags for which there is a field, and flags from which kcpctl derives certificates and connections.
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// ServerSettings are flags of a server. A component inherits those that it does not set from spec.defaults.
type ServerSettings struct {
	// LogLevel is the log level of kcp (-v), between 0 and 10. Default: 2.
	LogLevel *int32 `json:"logLevel,omitempty"`
	// LogFormat is the format of logs: text or json. Cache servers before v0.31.0 always write text, and etcd always
	// JSON. Default: text.
	LogFormat string `json:"logFormat,omitempty"`
	// ProfilerPort is the port of Go's profiler, which has no authentication. Only the pod itself reaches it, for
	// example with kubectl port-forward. With --local, the components share the ports of this machine. It has no effect
	// on cache servers. Default: no profiler.
	ProfilerPort int32 `json:"profilerPort,omitempty"`
}

// Component contains the fields of all components except etcd.
type Component struct {
	// Cluster is the name of its cluster. Default: the cluster of the root shard, or the first of spec.clusters.
	Cluster string `json:"cluster,omitempty"`
	// Image overrides fields of spec.image.
	Image Image `json:"image,omitzero"`
	// Expose is how the component is reached from outside its cluster: an object, or its type. It is ignored with
	// --local. A service overlay takes precedence. Default: ClusterIP.
	Expose   Expose `json:"expose,omitzero"`
	Defaults `json:",inline"`
	// Aliases are the names of additional Services that lead to the component, in its namespace. Its serving
	// certificate contains them. Use them while clients move from the Services of an earlier installation, such as
	// alpha-shard-kcp of kcp-operator. An existing Service keeps its type and its addresses, and leads to the component
	// as soon as that serves.
	Aliases []string `json:"aliases,omitempty"`
}

// Etcd is exactly one of managed, external and embedded.
type Etcd struct {
	// Managed is an etcd that kcpctl runs for the component.
	Managed *ManagedEtcd `json:"managed,omitempty"`
	// External is an existing etcd.
	External *ExternalEtcd `json:"external,omitempty"`
	// Embedded is an etcd in the process of the component. It requires a single replica.
	Embedded *EmbeddedEtcd `json:"embedded,omitempty"`
}

// ManagedEtcd is an etcd that kcpctl runs, with TLS for clients and peers.
type ManagedEtcd struct {
	// Replicas is the number of members: 1 or 3. Default: 1.
	Replicas *int32 `json:"replicas,omitempty"`
	// Image is the image of etcd, with etcd and etcdctl in its PATH. Default: the image that this release of kcpctl was
	// tested with.
	Image string `json:"image,omitempty"`
	// Storage is the size of the volume of each member. Default: 8Gi, or the storage of spec.size.
	Storage *resource.Quantity `json:"storage,omitempty"`
	// StorageClassName is the storage class of the volumes. Default: the default class of the cluster.
	StorageClassName string `json:"storageClassName,omitempty"`
	// Ephemeral stores the data in the pod, so that it is lost with the pod. Use it for tests only.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Quota is the size that the data may have (--quota-backend-bytes). A member that reaches it accepts no more
	// writes. It must be smaller than storage. Default: the quota of spec.size if it fits, else 2Gi, as etcd.
	Quota *resource.Quantity `json:"quota,omitempty"`
	// AutoCompaction is how long etcd keeps earlier revisions, such as 30m (--auto-compaction-retention). Default: etcd
	// compacts nothing, and kcp does every five minutes.
	AutoCompaction metav1.Duration `json:"autoCompaction,omitzero"`
	// Resources are the resources of the etcd container. Default: the resources of spec.size or, without a size, small
	// requests and no limits.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate is a partial PodTemplateSpec that is merged into the rendered one.
	PodTemplate Overlay `json:"podTemplate,omitempty"`
	// ExtraArgs are additional flags of etcd, such as --snapshot-count=10000, except flags for which there is a field,
	// and flags about members, addresses and certificates.
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// ExternalEtcd is an existing etcd.
type ExternalEtcd struct {
	// Endpoints are the URLs of the members, such as https://etcd.example.com:2379. A shard without endpoints uses the
	// endpoints of spec.etcd.
	Endpoints []string `json:"endpoints"`
	// Prefix is the prefix of all keys, so that shards and installations can share an etcd. Default:
	// /<installation>/<shard>, where <installation> is the ID that the first kcpctl up creates. It must not be set for
	// a cache server, which has a fixed prefix, or in spec.etcd, because each shard needs its own.
	Prefix string `json:"prefix,omitempty"`
	// TLSSecret is the name of a Secret with ca.crt, tls.crt and tls.key. It is required if the endpoints are https.
	TLSSecret string `json:"tlsSecret,omitempty"`
}

// EmbeddedEtcd is an etcd in the process of the component.
type EmbeddedEtcd struct {
	// Storage is the size of the volume. Default: 8Gi, or the storage of spec.size.
	Storage *resource.Quantity `json:"storage,omitempty"`
	// StorageClassName is the storage class of the volume. Default: the default class of the cluster.
	StorageClassName string `json:"storageClassName,omitempty"`
	// Ephemeral stores the data in the pod, so that it is lost with the pod. Default: false, but true for a cache
	// server, because the shards can rewrite the cache.
	Ephemeral *bool `json:"ephemeral,omitempty"`
}

// GateWorkspaceMounts is the feature gate for workspaces that are served by another URL.
const GateWorkspaceMounts = "WorkspaceMounts"

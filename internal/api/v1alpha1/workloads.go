package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workloads is transparent multi-cluster: users create Deployments in workspaces, and they run in physical clusters.
type Workloads struct {
	// Cluster is the name of the cluster in spec.clusters on which the controller runs. Default: the cluster of the root shard.
	Cluster string `json:"cluster,omitempty"`
	// Workspace is the path of the compute workspace, which has the Cluster objects and the APIExports. kcpctl up creates it if it does not
	// exist. Its administrators can read the credentials for all clusters. Default: root:compute.
	Workspace string `json:"workspace,omitempty"`
	// WorkspaceType is the name of the WorkspaceType in the compute workspace whose workspaces can use the APIs. Default: workload.
	WorkspaceType string `json:"workspaceType,omitempty"`
	// APIs are the APIs of the clusters that are published, as RESOURCE.GROUP. Default: deployments.apps, statefulsets.apps, services,
	// persistentvolumeclaims, ingresses.networking.k8s.io, jobs.batch and cronjobs.batch.
	APIs []string `json:"apis,omitempty"`
	// Clusters are the physical clusters.
	Clusters []WorkloadCluster `json:"clusters,omitempty"`
	// Image overrides fields of the image of kcpctl, which the controller runs. Default: ghcr.io/kcpctl/kcpctl, with the tag latest, and with the
	// pull policy and the pull secrets of spec.image. It has no effect with --local.
	Image Image `json:"image,omitzero"`
	// Replicas is the number of replicas of the controller. One of them works, the others replace it if it fails. Default: 1.
	Replicas *int32 `json:"replicas,omitempty"`
	// Resources are the resources of the container. Default: small requests, and no limits.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate is a partial PodTemplateSpec that is merged into the rendered one.
	PodTemplate Overlay `json:"podTemplate,omitempty"`
	// LogLevel is the log level of the controller, between 0 and 10. Default: 2.
	LogLevel *int32 `json:"logLevel,omitempty"`
	// ExtraArgs are additional flags such as --name=value. They replace flags of the same name that kcpctl sets.
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// SyncMode is where the syncer of a physical cluster runs.
type SyncMode string

const (
	// SyncModePush runs the syncer in the controller, which connects to the cluster.
	SyncModePush SyncMode = "Push"
	// SyncModeNone leaves it to the user to run kcpctl syncer.
	SyncModeNone SyncMode = "None"
)

// WorkloadCluster is a physical Kubernetes cluster that runs the objects of workspaces. kcpctl up creates a ServiceAccount for the
// syncer there. It does not store the kubeconfig of the user.
type WorkloadCluster struct {
	// Name is the name of the Cluster object: a DNS label of at most 40 characters. It is the value of the label workloads.kcp.dev/cluster of all
	// objects that run there, so it cannot be changed.
	Name string `json:"name"`
	// Context is the kubeconfig context with which kcpctl up prepares the cluster. Default: the current context.
	Context string `json:"context,omitempty"`
	// Kubeconfig is the path to a kubeconfig file. Default: the kubeconfig that kubectl uses.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Server is the URL at which the controller reaches the API server. Default: that of the kubeconfig.
	Server string `json:"server,omitempty"`
	// SyncMode is Push or None. With Push, the controller connects to the cluster and syncs it. With None, the user runs kcpctl syncer, for example
	// because the controller cannot connect to the cluster. Default: Push.
	SyncMode SyncMode `json:"syncMode,omitempty"`
	// Labels are the labels of the Cluster object. Users select clusters by them.
	Labels map[string]string `json:"labels,omitempty"`
	// EvictAfter is how long the cluster may be not ready before its share runs on other clusters. Default: 60s.
	EvictAfter *metav1.Duration `json:"evictAfter,omitempty"`
	// Unschedulable means that nothing new is scheduled to the cluster. What runs there stays.
	Unschedulable bool `json:"unschedulable,omitempty"`
}

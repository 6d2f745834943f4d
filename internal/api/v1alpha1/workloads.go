package v1alpha1

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workloads is transparent multi-cluster: users create Deployments in workspaces, and they run in physical clusters.
type Workloads struct {
	// Cluster is the name of the cluster in spec.clusters on which the controller runs. Default: the cluster of the
	// root shard.
	Cluster string `json:"cluster,omitempty"`
	// Workspace is the path of the compute workspace, which has the Cluster objects and the APIExports. kcpctl up
	// creates it if it does not exist. Its administrators can read the credentials for all clusters. Default:
	// root:compute.
	Workspace string `json:"workspace,omitempty"`
	// WorkspaceType is the name of the WorkspaceType in the compute workspace whose workspaces can use the APIs.
	// Default: workload.
	WorkspaceType string `json:"workspaceType,omitempty"`
	// Groups are the groups of users who may create workspaces of this type, where they may create workspaces at all.
	// Their Pods run in the physical clusters. Default: system:authenticated, which are all users.
	Groups []string `json:"groups,omitempty"`
	// APIs are the APIs of the clusters that are published, as RESOURCE.GROUP. Default: deployments.apps,
	// statefulsets.apps, services, persistentvolumeclaims, ingresses.networking.k8s.io, jobs.batch, cronjobs.batch,
	// networkpolicies.networking.k8s.io, poddisruptionbudgets.policy and horizontalpodautoscalers.autoscaling.
	APIs []string `json:"apis,omitempty"`
	// Clusters are the physical clusters.
	Clusters []WorkloadCluster `json:"clusters,omitempty"`
	// Image overrides fields of the image of kcpctl, which the controller and the syncers run. Default:
	// ghcr.io/kcpctl/kcpctl, with the version of kcpctl as the tag, the digest that a release of kcpctl knows, and the
	// pull policy and the pull secrets of spec.image. The default digest is not for another repository or tag. It has
	// no effect with --local.
	Image Image `json:"image,omitzero"`
	// Replicas is the number of replicas of the controller. One of them works, the others replace it if it fails.
	// Default: 1.
	Replicas *int32 `json:"replicas,omitempty"`
	// Resources are the resources of the container. Default: small requests, and no limits.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate is a partial PodTemplateSpec that is merged into the rendered one.
	PodTemplate Overlay `json:"podTemplate,omitempty"`
	// LogLevel is the log level of the controller and of the syncers, between 0 and 10. Default: 2.
	LogLevel *int32 `json:"logLevel,omitempty"`
	// ExtraArgs are additional flags such as --name=value. They replace flags of the same name that kcpctl sets, except
	// flags for which there is a field, and flags from which kcpctl derives certificates and connections.
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// SyncMode is where the syncer of a physical cluster runs.
type SyncMode string

const (
	// SyncModePush runs the syncer in the controller, which connects to the cluster.
	SyncModePush SyncMode = "Push"
	// SyncModePull runs the syncer as a Deployment in the cluster, which connects to kcp.
	SyncModePull SyncMode = "Pull"
	// SyncModeNone leaves it to the user to run kcpctl syncer.
	SyncModeNone SyncMode = "None"
)

// SyncModes are all modes.
var SyncModes = []SyncMode{SyncModePush, SyncModePull, SyncModeNone}

// PodSecurity is a level of the Pod Security Standards.
type PodSecurity string

const (
	// PodSecurityPrivileged allows everything, also access to the nodes.
	PodSecurityPrivileged PodSecurity = "privileged"
	// PodSecurityBaseline prevents known ways to become more than a pod.
	PodSecurityBaseline PodSecurity = "baseline"
	// PodSecurityRestricted also requires what is best practice.
	PodSecurityRestricted PodSecurity = "restricted"
)

// PodSecurities are all levels, the least strict first.
var PodSecurities = []PodSecurity{PodSecurityPrivileged, PodSecurityBaseline, PodSecurityRestricted}

// WorkloadCluster is a physical Kubernetes cluster that runs the objects of workspaces. kcpctl up creates a
// ServiceAccount for the syncer there. It does not store the kubeconfig of the user.
type WorkloadCluster struct {
	// Name is the name of the Cluster object: a DNS label of at most 40 characters. It is the value of the label
	// workloads.kcp.dev/cluster of all objects that run there, so it cannot be changed.
	Name string `json:"name"`
	// Context is the kubeconfig context with which kcpctl up prepares the cluster. Default: the current context.
	Context string `json:"context,omitempty"`
	// Kubeconfig is the path to a kubeconfig file. Default: the kubeconfig that kubectl uses.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Cluster is the name of a cluster in spec.clusters that this physical cluster is, instead of context and
	// kubeconfig. The syncer runs in its namespace. Only with syncMode Pull. Default: the syncer runs in the namespace
	// kcpctl-syncer.
	Cluster string `json:"cluster,omitempty"`
	// Server is the URL at which the controller reaches the API server. Default: the URL in the kubeconfig.
	Server string `json:"server,omitempty"`
	// SyncMode is Push, Pull or None. With Push, the controller connects to the cluster and syncs it. With Pull, a
	// Deployment in the cluster does, and connects to kcp. With None, the user runs kcpctl syncer. Default: Push.
	SyncMode SyncMode `json:"syncMode,omitempty"`
	// Resources are the resources of the syncer's container. Only with syncMode Pull. Default: small requests, and no
	// limits.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate is a partial PodTemplateSpec that is merged into the one of the syncer. Only with syncMode Pull.
	PodTemplate Overlay `json:"podTemplate,omitempty"`
	// Labels are the labels of the Cluster object. Users select clusters by them.
	Labels          map[string]string `json:"labels,omitempty"`
	ClusterSettings `json:",inline"`
}

// ClusterSettings are the fields of a physical cluster that its Cluster object also has.
type ClusterSettings struct {
	// WorkspaceSelector selects the workspaces that may use the cluster. Default: all workspaces.
	WorkspaceSelector *WorkspaceSelector `json:"workspaceSelector,omitempty"`
	// Tenancy determines what the namespaces of workspaces have in the cluster, and what their pods may request.
	// Default: nothing is written into them, and pods may request what the cluster permits.
	Tenancy *Tenancy `json:"tenancy,omitempty"`
	// MaxCapacity bounds the allocatable resources that the syncer of the cluster may report, such as cpu: "64".
	// Resources that are not listed are not bounded.
	MaxCapacity corev1.ResourceList `json:"maxCapacity,omitempty"`
	// EvictAfter is how long the cluster may be not ready before other clusters run its share, too. Objects that run
	// there are kept. 0s means that no other cluster runs its share. Default: 60s.
	EvictAfter *metav1.Duration `json:"evictAfter,omitempty"`
	// PodSecurity is what pods of workspaces may do in the cluster: privileged, baseline or restricted, a Pod Security
	// Standard. With privileged, a user of a workspace can control the nodes. Default: baseline.
	PodSecurity PodSecurity `json:"podSecurity,omitempty"`
	// Unschedulable means that no new objects are scheduled to the cluster. Objects that run there are kept.
	Unschedulable bool `json:"unschedulable,omitempty"`
}

// WorkspaceSelector selects workspaces.
type WorkspaceSelector struct {
	// Paths are paths of workspaces. root:team selects root:team and the workspaces below it, such as root:team:web.
	Paths []string `json:"paths"`
}

// Selects reports whether a workspace is selected. A path that is not known, which is empty, is not. A nil selector
// selects all.
func (s *WorkspaceSelector) Selects(path string) bool {
	return s == nil || slices.ContainsFunc(s.Paths,
		func(p string) bool { return path == p || strings.HasPrefix(path, p+":") })
}

// Tenancy determines what the namespaces of workspaces have in a physical cluster, and what their pods may request. By
// default, nothing is written into a namespace but the objects of its workspace.
type Tenancy struct {
	// Objects are ResourceQuotas, LimitRanges and NetworkPolicies. The syncer writes them into each namespace of a
	// workspace before other objects, restores them, and removes them when they are no longer in the list. In strings,
	// $(WORKSPACE) stands for the value of the label workloads.kcp.dev/workspace of the namespace. Default: none.
	Objects []NamespaceObject `json:"objects,omitempty"`
	// Pods are rules for pods in namespaces of workspaces, also for those that controllers of the cluster create.
	// kcpctl up writes them as a ValidatingAdmissionPolicy, which needs Kubernetes 1.30. {} permits no PriorityClasses
	// and no tolerations. Default: no rules.
	Pods *PodRules `json:"pods,omitempty"`
}

// NamespaceObject is an object without a namespace: a ResourceQuota, a LimitRange or a NetworkPolicy.
type NamespaceObject map[string]any

// PodRules determine what pods may request. Running pods are not checked. Tolerations of taints that Kubernetes itself
// sets (node.kubernetes.io) are permitted, because it adds them to pods. The name of a node (nodeName) is not.
type PodRules struct {
	// PriorityClasses are the names of the PriorityClasses that pods may have. If a PriorityClass is the default of the
	// cluster (globalDefault), it must be one of them, because all pods have it. Default: none.
	PriorityClasses []string `json:"priorityClasses,omitempty"`
	// TolerationKeys are the keys of the taints that pods may tolerate. Default: none.
	TolerationKeys []string `json:"tolerationKeys,omitempty"`
	// NodeSelector has labels of nodes. Pods of workspaces run on these nodes only: the syncer adds the labels to the
	// node selectors of pod templates, and the cluster refuses pods without them. A change replaces the pods of
	// existing workloads at once. Default: all nodes.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

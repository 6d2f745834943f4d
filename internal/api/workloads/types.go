// Package workloads defines the API of transparent multi-cluster: the type Cluster, the labels and annotations by which
// objects in workspaces and objects in physical clusters belong together, and the names of these objects.
//
// A user creates a root object, such as a Deployment, in a workspace. The splitter makes a leaf of it for each cluster
// that it is scheduled to, in the same namespace. The label workloads.kcp.dev/cluster of the leaf names the cluster.
// The syncer of that cluster copies the leaf to the physical cluster, where it has the name of the root again, and
// copies its status back.
//
// The types have no generated functions. Clients are dynamic, and objects are converted where they are read and
// written.
package workloads

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/templates"
)

// The API group of the types, and the prefix of labels and annotations.
const (
	Group   = "workloads.kcp.dev"
	Version = "v1alpha1"
)

// KindCluster is the kind of a physical cluster.
const KindCluster = "Cluster"

// DefaultEvictAfter is how long a cluster may be not ready before other clusters run its share, too.
const DefaultEvictAfter = time.Minute

// Cluster is a physical Kubernetes cluster that runs the workloads of workspaces. It is a cluster-scoped object in the
// compute workspace.
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSpec   `json:"spec"`
	Status ClusterStatus `json:"status,omitzero"`
}

// ClusterSpec is how a cluster is reached, and what may run there.
type ClusterSpec struct {
	// KubeconfigSecretRef is the Secret with the kubeconfig of the cluster, under the key kubeconfig. Only for
	// SyncModePush.
	KubeconfigSecretRef *SecretReference `json:"kubeconfigSecretRef,omitempty"`
	// SyncMode is where the syncer runs. Default: Pull.
	SyncMode                 v1alpha1.SyncMode `json:"syncMode,omitempty"`
	v1alpha1.ClusterSettings `json:",inline"`
}

// LabelPodSecurity is the label of a namespace with the level that its pods must have (kubernetes:
// staging/src/k8s.io/pod-security-admission/api/constants.go).
const LabelPodSecurity = "pod-security.kubernetes.io/enforce"

// SecretReference is a Secret in the workspace of the object that refers to it.
type SecretReference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// KeyKubeconfig is the key of a kubeconfig in its Secret.
const KeyKubeconfig = "kubeconfig"

// ClusterStatus is the observed state of a cluster. Only the controller writes it.
type ClusterStatus struct {
	// UID identifies the physical cluster: the UID of its namespace kube-system. The controller sets it once. Another
	// cluster under the same name or credentials is not used.
	UID        types.UID          `json:"uid,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// LastHeartbeatTime is when the controller last saw a new heartbeat of the syncer, by the clock of the controller.
	LastHeartbeatTime *metav1.Time `json:"lastHeartbeatTime,omitempty"`
	// Version is the version of the cluster's API server, such as v1.36.3.
	Version string `json:"version,omitempty"`
	// Syncer is the syncer that sent the last heartbeat.
	Syncer *SyncerStatus `json:"syncer,omitempty"`
	// Capacity are the resources of the cluster. It is nil if they are unknown.
	Capacity *Capacity `json:"capacity,omitempty"`
	// Leaves is the number of objects in workspaces that are scheduled to the cluster, counted every ten seconds. It is
	// nil if it is unknown.
	Leaves *int64 `json:"leaves,omitempty"`
	// APIs are the APIs of the cluster, sorted by group and resource.
	APIs []APIStatus `json:"apis,omitempty"`
}

// SyncerStatus is the syncer of a cluster.
type SyncerStatus struct {
	Mode    v1alpha1.SyncMode `json:"mode,omitempty"`
	Version string            `json:"version,omitempty"`
	// Holder is the holder of the Lease: the process of the syncer.
	Holder string `json:"holder,omitempty"`
}

// Capacity has the resources of the nodes that accept pods, and the requests of the pods on them.
type Capacity struct {
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	Requested   corev1.ResourceList `json:"requested,omitempty"`
}

// APIState is whether workspaces can use an API of a cluster.
type APIState string

const (
	// APIPublished means that the published schema accepts the same objects as the one of the cluster.
	APIPublished APIState = "Published"
	// APICompatible means that the cluster accepts every object of the published schema, and others.
	APICompatible APIState = "Compatible"
	// APIIncompatible means that some objects of the published schema are invalid in the cluster, or lose fields there.
	// Objects of this API are not scheduled to the cluster.
	APIIncompatible APIState = "Incompatible"
	// APIIgnored means that the API is not to be published, or that the cluster does not serve it.
	APIIgnored APIState = "Ignored"
	// APIRemoved means that the API is published, but is no longer one of the APIs to publish. Its objects are kept
	// unchanged: they are neither scheduled nor synced.
	APIRemoved APIState = "Removed"
)

// Serves reports whether objects of an API in this state can run in the cluster.
func (s APIState) Serves() bool { return s == APIPublished || s == APICompatible }

// APIStatus is an API of a cluster.
type APIStatus struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	// Version is the version that is published. It is empty for an API that is not published.
	Version string   `json:"version,omitempty"`
	State   APIState `json:"state"`
	// Message is the reason, with the path of the field in the schema.
	Message string `json:"message,omitempty"`
	// Accept is how a cluster can serve an API that is Incompatible. Nil: no schema permits that.
	Accept *Acceptance `json:"accept,omitempty"`
}

// Acceptance is a narrower schema of a published API, which a user can accept.
type Acceptance struct {
	// Value is the value of AnnotationAcceptSchema. It stands for exactly these two schemas: the published one, and the
	// narrower one.
	Value string `json:"value"`
	// Lost are the fields that objects lose in all workspaces, or for which they are refused, with the reason.
	Lost []string `json:"lost"`
}

// GroupResource is the name of the API.
func (a APIStatus) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: a.Group, Resource: a.Resource}
}

// ClusterGVK is the kind of Cluster.
func ClusterGVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: Group, Version: Version, Kind: KindCluster}
}

// ClusterGVR is the resource of Cluster.
func ClusterGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: Group, Version: Version, Resource: "clusters"}
}

// ClusterOf converts an object that a client has read. It fails if the object is not a Cluster, or has a field of
// another type than the CRD permits.
func ClusterOf(u *unstructured.Unstructured) (*Cluster, error) {
	if u.GroupVersionKind() != ClusterGVK() {
		return nil, fmt.Errorf("%s %s is not a %s", u.GroupVersionKind(), u.GetName(), ClusterGVK())
	}
	c := &Cluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
		return nil, fmt.Errorf("read Cluster %s: %w", u.GetName(), err)
	}
	return c, nil
}

// Unstructured converts a Cluster for a client. The type meta is set.
func (c *Cluster) Unstructured() (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		return nil, fmt.Errorf("convert Cluster %s: %w", c.Name, err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(ClusterGVK())
	return u, nil
}

// EvictAfter returns how long the cluster may be not ready before other clusters run its share, too. Zero means
// forever.
func (c *Cluster) EvictAfter() time.Duration {
	if c.Spec.EvictAfter == nil {
		return DefaultEvictAfter
	}
	return c.Spec.EvictAfter.Duration
}

// PodSecurity returns the level of the namespaces with objects of workspaces, with the default.
func (c *Cluster) PodSecurity() v1alpha1.PodSecurity {
	return cmp.Or(c.Spec.PodSecurity, v1alpha1.PodSecurityBaseline)
}

// Draining reports whether what is scheduled to the cluster moves to others: the Cluster is deleted, or it is cordoned
// and drained.
func (c *Cluster) Draining() bool {
	_, drain := c.Annotations[AnnotationDrain]
	return c.DeletionTimestamp != nil || drain && c.Spec.Unschedulable
}

// PhysicalUID returns the UID of the physical cluster that the Cluster is for. It is empty before that is known.
func (c *Cluster) PhysicalUID() types.UID {
	return cmp.Or(c.Status.UID, types.UID(c.Annotations[AnnotationPhysicalUID]))
}

// GivenUp reports whether the Cluster is deleted by force: objects that are scheduled to it are kept in the physical
// cluster, without an object in kcp.
func (c *Cluster) GivenUp() bool {
	_, force := c.Annotations[AnnotationForceRemoval]
	return force && c.DeletionTimestamp != nil
}

// Mode returns where the syncer runs, with the default.
func (c *Cluster) Mode() v1alpha1.SyncMode { return cmp.Or(c.Spec.SyncMode, v1alpha1.SyncModePull) }

// API returns the state of an API of the cluster. It is APIIgnored if the status does not list the API.
func (c *Cluster) API(gr schema.GroupResource) APIStatus {
	for _, a := range c.Status.APIs {
		if a.GroupResource() == gr {
			return a
		}
	}
	return APIStatus{Group: gr.Group, Resource: gr.Resource, State: APIIgnored,
		Message: "the cluster has not reported this API"}
}

// CRD returns the CustomResourceDefinition of Cluster for the compute workspace.
func CRD() (*unstructured.Unstructured, error) {
	data, err := templates.FS.ReadFile("workload/clusters.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the CRD of Cluster: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		return nil, fmt.Errorf("read the CRD of Cluster: %w", err)
	}
	return crd, nil
}

// Dependencies are the resources of which workloads need objects, and which kcp serves itself: no cluster has to
// publish them (kcp: pkg/virtual/apiexport/schemas/builtin).
func Dependencies() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("configmaps"),
		corev1.SchemeGroupVersion.WithResource("secrets"),
		corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
	}
}

// Namespaces is the resource of namespaces.
func Namespaces() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("namespaces")
}

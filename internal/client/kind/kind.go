// Package kind is the table of the kinds of objects that kcpctl applies, and of the resources that it uses besides
// them. They are few and well known, so no discovery is needed.
package kind

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of object, and the resource under which API servers serve it.
type Kind struct {
	schema.GroupVersionKind
	Resource string
	// ClusterScoped kinds have no namespace.
	ClusterScoped bool
	// Persistent objects hold data. They are neither pruned nor deleted, only purged.
	Persistent bool
	// Optional kinds are used only by setups that need them. Clusters may not serve them, and users may lack
	// permissions for them.
	Optional bool
	// BuiltIn kinds are optional, and every cluster serves them.
	BuiltIn bool
	// Definition is the name of the CustomResourceDefinition of a kind that kcpctl installs itself.
	Definition string
	// Shared objects serve all setups of a cluster. They are applied if they do not exist, or are older (see
	// AnnotationRelease), and never pruned.
	Shared bool
	// Older are versions of the API with the same fields, newest first, for clusters that do not serve Version.
	Older []string
}

// The kinds that a setup consists of, and Pod, which their controllers create.
var (
	Namespace = Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"},
		Resource:         "namespaces", ClusterScoped: true, Persistent: true,
	}
	ConfigMap = Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource:         "configmaps",
	}
	Secret = Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"},
		Resource:         "secrets",
	}
	Service = Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Service"},
		Resource:         "services",
	}
	PersistentVolumeClaim = Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"},
		Resource:         "persistentvolumeclaims", Persistent: true,
	}
	Ingress = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
		Resource:         "ingresses", Optional: true,
	}
	// TLSRoute is v1 since release 1.5 of the Gateway API; 1.4 has v1alpha3, and the releases before have v1alpha2.
	TLSRoute = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "TLSRoute"},
		Resource:         "tlsroutes", Optional: true, Older: []string{"v1alpha3", "v1alpha2"},
	}
	Route = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"},
		Resource:         "routes", Optional: true,
	}
	NetworkPolicy = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		Resource:         "networkpolicies", Optional: true, BuiltIn: true,
	}
	PodMonitor          = monitoring("PodMonitor", "podmonitors")
	PrometheusRule      = monitoring("PrometheusRule", "prometheusrules")
	PodDisruptionBudget = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		Resource:         "poddisruptionbudgets",
	}
	StatefulSet = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		Resource:         "statefulsets",
	}
	Deployment = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		Resource:         "deployments",
	}
	HorizontalPodAutoscaler = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "autoscaling", Version: "v2",
			Kind: "HorizontalPodAutoscaler"},
		Resource: "horizontalpodautoscalers", Optional: true, BuiltIn: true,
	}
	CustomResourceDefinition = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition"},
		Resource: "customresourcedefinitions", ClusterScoped: true, Optional: true, BuiltIn: true,
		Shared: true, Persistent: true,
	}
	ServiceAccount = Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"},
		Resource:         "serviceaccounts", Optional: true, BuiltIn: true,
	}
	Role               = rbac("Role", "roles", false)
	RoleBinding        = rbac("RoleBinding", "rolebindings", false)
	ClusterRole        = rbac("ClusterRole", "clusterroles", true)
	ClusterRoleBinding = rbac("ClusterRoleBinding", "clusterrolebindings", true)
	// PublishedResource is what an agent publishes (api-syncagent: sdk/apis/syncagent/v1alpha1).
	PublishedResource = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "syncagent.kcp.io", Version: "v1alpha1",
			Kind: "PublishedResource"},
		Resource: "publishedresources", ClusterScoped: true, Optional: true,
		Definition: "publishedresources.syncagent.kcp.io",
	}
	// Lease is what agents make themselves.
	Lease = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
		Resource:         "leases",
	}
	Pod = Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:         "pods",
	}
	ValidatingAdmissionPolicy        = admission("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
	ValidatingAdmissionPolicyBinding = admission("ValidatingAdmissionPolicyBinding",
		"validatingadmissionpolicybindings")
	Event = Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Event"},
		Resource:         "events",
	}
)

func rbac(name, resource string, clusterScoped bool) Kind {
	return Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: name},
		Resource:         resource, ClusterScoped: clusterScoped, Optional: true, BuiltIn: true,
	}
}

// GroupMonitoring is the API group of the Prometheus operator.
const GroupMonitoring = "monitoring.coreos.com"

func monitoring(name, resource string) Kind {
	return Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: GroupMonitoring, Version: "v1", Kind: name},
		Resource:         resource, Optional: true,
	}
}

func admission(name, resource string) Kind {
	return Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: name},
		Resource:         resource, ClusterScoped: true, Optional: true,
	}
}

// OnPhysical are the kinds that kcpctl applies to physical clusters only.
var OnPhysical = []Kind{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding}

// Applied are all kinds that a setup consists of, in the order in which they are applied.
var Applied = []Kind{
	Namespace, CustomResourceDefinition, ServiceAccount, Role, RoleBinding, ClusterRole, ClusterRoleBinding,
	PublishedResource,
	ConfigMap, Secret, NetworkPolicy, Service, Ingress, TLSRoute, Route, PersistentVolumeClaim, PodDisruptionBudget,
	PodMonitor, PrometheusRule, StatefulSet, Deployment, HorizontalPodAutoscaler,
}

// The resources that kcpctl uses besides the kinds that it applies.
var (
	Pods           = Pod.GVR()
	Events         = Event.GVR()
	ReplicaSets    = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	Leases         = Lease.GVR()
	Nodes          = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	ResourceQuotas = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
	IngressClasses = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingressclasses"}
	Gateways       = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1",
		Resource: "gateways"}
	StorageClasses = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
)

// Of returns the kind of an object of the setup. It fails for kinds that kcpctl neither applies nor deletes.
func Of(gvk schema.GroupVersionKind) (Kind, error) {
	for _, k := range slices.Concat(Applied, OnPhysical, []Kind{Lease}) {
		if k.GroupVersionKind == gvk {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("kcpctl does not apply objects of kind %s", gvk)
}

// Readable returns the kind of an object that kcpctl reads: of the setup, or what Kubernetes makes of one.
func Readable(gvk schema.GroupVersionKind) (Kind, error) {
	for _, k := range []Kind{Pod, Event} {
		if k.GroupVersionKind == gvk {
			return k, nil
		}
	}
	return Of(gvk)
}

// GVR is the resource of the kind with its group and version.
func (k Kind) GVR() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.Resource) }

// Negotiated reports whether a client has to look up the version in which a cluster serves the kind, if it serves it at
// all.
func (k Kind) Negotiated() bool { return k.Optional && !k.BuiltIn }

// HasPods reports whether a controller creates pods from objects of this kind.
func (k Kind) HasPods() bool { return k.Group == "apps" }

package kube

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a kind of object that a setup consists of. They are few and well known, so no discovery is needed.
type kind struct {
	schema.GroupVersionKind
	resource string
	// clusterScoped kinds have no namespace.
	clusterScoped bool
	// lasting objects hold data: they are neither pruned nor deleted, only purged.
	lasting bool
}

// kinds are all kinds of objects that a setup consists of, in the order in which they are applied.
func kinds() []kind {
	return []kind{
		{schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "namespaces", true, true},
		{schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "configmaps", false, false},
		{schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "secrets", false, false},
		{schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "services", false, false},
		{schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, "persistentvolumeclaims", false, true},
		{schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, "poddisruptionbudgets", false, false},
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}, "statefulsets", false, false},
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "deployments", false, false},
	}
}

// kindOf finds a kind.
func kindOf(gvk schema.GroupVersionKind) (kind, error) {
	for _, k := range kinds() {
		if k.GroupVersionKind == gvk {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("kcpctl does not apply objects of kind %s", gvk)
}

// known returns a kind of the core group, or of apps, that must exist.
func known(name string) kind {
	all := kinds()
	return all[slices.IndexFunc(all, func(k kind) bool { return k.Kind == name })]
}

func (k kind) gvr() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.resource) }

// hasPods tells whether a controller makes pods from objects of this kind.
func (k kind) hasPods() bool { return k.Group == "apps" }

// The resources that kcpctl uses besides the kinds that it applies.
func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func events() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "events"}
}

func replicaSets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
}

func leases() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
}

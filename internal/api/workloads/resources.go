package workloads

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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

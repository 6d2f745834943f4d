package splitter

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// TokenOf returns the name of the ServiceAccount for which a Secret has a token. It is "" for other objects.
func TokenOf(o *unstructured.Unstructured) string {
	if of := secretType(o); of != string(corev1.SecretTypeServiceAccountToken) && of != api.SecretTypeToken {
		return ""
	}
	return o.GetAnnotations()[corev1.ServiceAccountNameKey]
}

// SetToken makes a Secret with a token for a ServiceAccount an empty one of a type: the controller of each server fills
// in Secrets of the type of Kubernetes, with a token that is for this server. It does nothing with other objects.
func SetToken(o *unstructured.Unstructured, of string) {
	if TokenOf(o) == "" {
		return
	}
	o.Object["type"] = of
	unstructured.RemoveNestedField(o.Object, "data")
	unstructured.RemoveNestedField(o.Object, "stringData")
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", corev1.ServiceAccountUIDKey)
}

// secretType returns the type of a Secret, which cannot be changed. It is "" for other objects.
func secretType(o *unstructured.Unstructured) string {
	if o.GroupVersionKind().GroupKind() != (schema.GroupKind{Kind: "Secret"}) {
		return ""
	}
	of, _, _ := unstructured.NestedString(o.Object, "type")
	return of
}

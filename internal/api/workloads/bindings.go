package workloads

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ClaimsApplied reports whether kcp has applied the claims of an APIBinding: the owner of its APIExport sees the
// objects.
func ClaimsApplied(binding *unstructured.Unstructured) bool {
	c := ConditionIn(binding, "PermissionClaimsApplied")
	return c != nil && c.Status == metav1.ConditionTrue
}

// SyncProblem returns why the syncer of a cluster cannot write a leaf there, or "". Objects without conditions have the
// reason in an annotation.
func SyncProblem(leaf *unstructured.Unstructured) string {
	if c := ConditionIn(leaf, ConditionSynced); c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason + ": " + c.Message
	}
	return leaf.GetAnnotations()[AnnotationSyncError]
}

// Not returns a condition that is False, without a time.
func Not(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// ConditionIn returns a condition of an object, or nil.
func ConditionIn(o *unstructured.Unstructured, kind string) *metav1.Condition {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range all {
		m, _ := item.(map[string]any)
		c := &metav1.Condition{}
		if m["type"] == kind && runtime.DefaultUnstructuredConverter.FromUnstructured(m, c) == nil {
			return c
		}
	}
	return nil
}

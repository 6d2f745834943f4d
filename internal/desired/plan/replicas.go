package plan

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// LeavesReplicas reports whether an object with pods leaves the number of its replicas to others.
func LeavesReplicas(o *unstructured.Unstructured) bool {
	_, set, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
	return HasPods(o.GetKind()) && !set
}

// KeepReplicas returns the rendered object with the replicas of the live object, if it leaves them to others. A plan
// that omits them would set the default of Kubernetes, as long as no one but kcpctl has ever set them.
func KeepReplicas(want, live *unstructured.Unstructured) *unstructured.Unstructured {
	if live == nil || !LeavesReplicas(want) {
		return want
	}
	n, set, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
	if !set {
		return want
	}
	want = want.DeepCopy()
	// It fails only if the spec is not an object, and the API server refuses that.
	_ = unstructured.SetNestedField(want.Object, n, "spec", "replicas")
	return want
}

package plan

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Same reports whether two states of an object are equal, except for fields that the API server manages: the status, and parts
// of the metadata.
func Same(a, b *unstructured.Unstructured) bool {
	am, _ := a.Object["metadata"].(map[string]any)
	bm, _ := b.Object["metadata"].(map[string]any)
	return sameBut(a.Object, b.Object, "metadata", "status") &&
		sameBut(am, bm, "managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
}

// sameBut reports whether two maps are equal except for some keys.
func sameBut(a, b map[string]any, except ...string) bool {
	for k, v := range a {
		if slices.Contains(except, k) {
			continue
		}
		if w, ok := b[k]; !ok || !reflect.DeepEqual(v, w) {
			return false
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok && !slices.Contains(except, k) {
			return false
		}
	}
	return true
}

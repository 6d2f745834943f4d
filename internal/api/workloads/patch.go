package workloads

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// StatusPatch returns what changes the status of an object as it was read, and the merge patch for it. Both are nil if
// it does not change. The patch is for the version that was read only: a field that it does not have because it was
// equal then would otherwise keep what was written in between, and the result would be a status that never was.
func StatusPatch(read *unstructured.Unstructured, to map[string]any) (changes, patch map[string]any) {
	from, _, _ := unstructured.NestedMap(read.Object, "status")
	if changes = MergePatch(from, to); len(changes) == 0 {
		return nil, nil
	}
	return changes, map[string]any{"status": changes, "metadata": map[string]any{
		"resourceVersion": read.GetResourceVersion(), "uid": string(read.GetUID()),
	}}
}

// MergePatch returns the JSON merge patch that changes one object to another: fields that the other one does not have
// are null. It is empty if they are equal.
func MergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key, value := range to {
		before, had := from[key]
		inner, isMap := value.(map[string]any)
		if beforeMap, wasMap := before.(map[string]any); isMap && wasMap {
			if p := MergePatch(beforeMap, inner); len(p) > 0 {
				patch[key] = p
			}
			continue
		}
		if !had || !reflect.DeepEqual(before, value) {
			patch[key] = value
		}
	}
	for key := range from {
		if _, has := to[key]; !has {
			patch[key] = nil
		}
	}
	return patch
}

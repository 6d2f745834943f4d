package api

import "reflect"

// MergePatch returns the JSON merge patch that changes one object to another: fields that the other one does not have are null. It is empty
// if they are equal.
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

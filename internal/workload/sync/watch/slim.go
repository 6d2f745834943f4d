package watch

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// maxShared is how many names of fields, and how many other strings, a set shares, and longestShared the length in
	// bytes of the longest: those that many objects have are short and few.
	maxShared, longestShared = 4096, 64
)

// slimmer makes the objects of a set smaller.
type slimmer struct {
	// keep are the paths of the fields that are kept. Nil: all.
	keep  [][]string
	table *table
}

// drop drops the fields that are not kept, managedFields, and the copy of the object that kubectl leaves in an
// annotation: they take much memory and are not read.
func (s *slimmer) drop(u *unstructured.Unstructured) {
	u.SetManagedFields(nil)
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	if s.keep != nil {
		u.Object = only(u.Object, s.keep)
	}
}

// copyOf copies an object: what was decoded lies between what is dropped, and the runtime reuses the gaps, but does not
// return them to the system. The copies share their strings.
func (s *slimmer) copyOf(u *unstructured.Unstructured) {
	// Values of a Secret are not shared: shared strings are never freed.
	u.Object, _ = s.copy(u.Object, u.GetKind() != "Secret").(map[string]any)
}

// only returns an object with the fields at some paths.
func only(object map[string]any, paths [][]string) map[string]any {
	out := map[string]any{}
	for _, path := range paths {
		v, ok, _ := unstructured.NestedFieldNoCopy(object, path...)
		if !ok {
			continue
		}
		at, last := out, len(path)-1
		for _, field := range path[:last] {
			next, ok := at[field].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[field] = next
			}
			at = next
		}
		at[path[last]] = v
	}
	return out
}

// copy copies a value of JSON. The keys of maps are shared, and other strings if values is true.
func (s *slimmer) copy(v any, values bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[s.table.share(k, true)] = s.copy(item, values)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = s.copy(item, values)
		}
		return out
	case string:
		if values {
			return s.table.share(v, false)
		}
	}
	return v
}

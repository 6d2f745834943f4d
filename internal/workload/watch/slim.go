package watch

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// maxShared is how many strings a set shares, and longestShared the length in bytes of the longest: those that many objects have, such
	// as the names of fields, are short and few.
	maxShared, longestShared = 4096, 64
)

// slimmer makes the objects of a set smaller.
type slimmer struct {
	// keep are the paths of the fields that are kept. Nil: all.
	keep [][]string

	mu     sync.Mutex
	shared map[string]string
}

// slim drops the fields that are not kept, and managedFields, which take much memory and are not read. The rest is copied: what was decoded
// lies between what is dropped, and the runtime reuses the gaps, but does not return them to the system. The copies share their strings.
func (s *slimmer) slim(u *unstructured.Unstructured) {
	u.SetManagedFields(nil)
	kept := u.Object
	if s.keep != nil {
		kept = only(kept, s.keep)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// What is shared stays for good: not what a Secret has.
	u.Object, _ = s.copy(kept, u.GetKind() != "Secret").(map[string]any)
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

// copy copies a value of JSON. The keys of maps are shared, and other strings if values is true. The slimmer is locked.
func (s *slimmer) copy(v any, values bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[s.share(k)] = s.copy(item, values)
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
			return s.share(v)
		}
	}
	return v
}

// share returns a string that is equal, and that other objects have too if it is short.
func (s *slimmer) share(v string) string {
	if len(v) > longestShared {
		return v
	}
	if one, ok := s.shared[v]; ok {
		return one
	}
	if len(s.shared) < maxShared {
		if s.shared == nil {
			s.shared = map[string]string{}
		}
		s.shared[v] = v
	}
	return v
}

package watch

import (
	"hash/maphash"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// held is an object as a set keeps it.
type held struct {
	// packed is the packed object. Empty: there is none.
	packed string
	// version is a hash of the UID and the resourceVersion.
	version uint64
	class   string
}

func (h held) exists() bool { return h.packed != "" }

// hold returns an object as the set keeps it. The object is used up. The fields that are not kept, managedFields, and
// the copy of the object that kubectl leaves in an annotation are dropped: they take much memory and are not read.
func (s *Set) hold(u *unstructured.Unstructured) held {
	h := held{version: maphash.Comparable(s.seed, [2]string{string(u.GetUID()), u.GetResourceVersion()})}
	if s.o.Class != nil {
		h.class = s.table.share(s.o.Class(u), false)
	}
	u.SetManagedFields(nil)
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	if s.o.Keep != nil {
		u.Object = only(u.Object, s.o.Keep)
	}
	h.packed = s.table.pack(u)
	return h
}

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

// store has objects by logical cluster, namespace and name: the objects of a namespace are read for each change in it.
type store map[string]map[string]map[string]held

func (s store) get(k Key) held { return s[k.Cluster][k.Namespace][k.Name] }

func (s store) set(k Key, h held) {
	if s[k.Cluster] == nil {
		s[k.Cluster] = map[string]map[string]held{}
	}
	if s[k.Cluster][k.Namespace] == nil {
		s[k.Cluster][k.Namespace] = map[string]held{}
	}
	s[k.Cluster][k.Namespace][k.Name] = h
}

func (s store) delete(k Key) {
	namespaces := s[k.Cluster]
	if delete(namespaces[k.Namespace], k.Name); len(namespaces[k.Namespace]) == 0 {
		delete(namespaces, k.Namespace)
	}
	if len(namespaces) == 0 {
		delete(s, k.Cluster)
	}
}

func (s store) each(f func(Key, held)) {
	for cluster := range s {
		s.eachIn(cluster, f)
	}
}

func (s store) eachIn(cluster string, f func(Key, held)) {
	for namespace, objects := range s[cluster] {
		for name, h := range objects {
			f(Key{cluster, namespace, name}, h)
		}
	}
}

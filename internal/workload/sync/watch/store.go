package watch

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// space is a namespace of a logical cluster.
type space struct{ cluster, namespace string }

// held is an object as a set keeps it: as it is, or packed.
type held struct {
	object *unstructured.Unstructured
	packed string
	// version is a hash of the UID and the resourceVersion.
	version uint64
	// class is the result of Options.Class.
	class string
}

// exists reports whether there is an object.
func (h held) exists() bool { return h.object != nil || h.packed != "" }

// hold returns an object as the set keeps it. The object is used up.
func (s *Set) hold(u *unstructured.Unstructured) held {
	h := held{version: maphash.Comparable(s.seed, [2]string{string(u.GetUID()), u.GetResourceVersion()})}
	if s.o.Class != nil {
		h.class = s.table.share(s.o.Class(u), false)
	}
	s.slimmer.drop(u)
	if s.o.Packed {
		if packed, ok := s.table.pack(u); ok {
			h.packed = packed
			return h
		}
	}
	s.slimmer.copyOf(u)
	h.object = u
	return h
}

// unpack returns the object.
func (s *Set) unpack(h held) *unstructured.Unstructured {
	if h.packed == "" {
		return h.object
	}
	return s.table.unpack(h.packed)
}

// store has objects by namespace and name: the objects of a namespace are read for each change in it.
type store map[space]map[string]held

func (s store) get(k Key) held { return s[space{k.Cluster, k.Namespace}][k.Name] }

func (s store) set(k Key, h held) {
	at := space{k.Cluster, k.Namespace}
	if s[at] == nil {
		s[at] = map[string]held{}
	}
	s[at][k.Name] = h
}

func (s store) delete(k Key) {
	at := space{k.Cluster, k.Namespace}
	if delete(s[at], k.Name); len(s[at]) == 0 {
		delete(s, at)
	}
}

// each calls a function with all objects, in no order.
func (s store) each(f func(Key, held)) {
	for at, objects := range s {
		for name, h := range objects {
			f(Key{at.cluster, at.namespace, name}, h)
		}
	}
}

package watch

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// space is a namespace of a logical cluster.
type space struct{ cluster, namespace string }

// store has objects by namespace and name: those of a namespace are read for each change in it.
type store map[space]map[string]*unstructured.Unstructured

func (s store) get(k Key) *unstructured.Unstructured { return s[space{k.Cluster, k.Namespace}][k.Name] }

func (s store) set(k Key, o *unstructured.Unstructured) {
	at := space{k.Cluster, k.Namespace}
	if s[at] == nil {
		s[at] = map[string]*unstructured.Unstructured{}
	}
	s[at][k.Name] = o
}

func (s store) delete(k Key) {
	at := space{k.Cluster, k.Namespace}
	if delete(s[at], k.Name); len(s[at]) == 0 {
		delete(s, at)
	}
}

// each calls a function with all objects, in no order.
func (s store) each(f func(Key, *unstructured.Unstructured)) {
	for at, objects := range s {
		for name, o := range objects {
			f(Key{at.cluster, at.namespace, name}, o)
		}
	}
}

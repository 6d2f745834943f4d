package fakeapi

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// owned reports whether an object has an owner.
func owned(o *unstructured.Unstructured, by types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == by })
}

// ownerless reports whether an object has owners, and none of them exists.
func (s *Server) ownerless(o *unstructured.Unstructured) bool {
	for _, owner := range s.objects {
		if owned(o, owner.GetUID()) {
			return false
		}
	}
	return len(o.GetOwnerReferences()) > 0
}

// owns reports whether an object owns others. They stay until a test deletes them: only a server of NewMemory has a
// garbage collector.
func (s *Server) owns(o *unstructured.Unstructured) bool {
	for _, other := range s.objects {
		if owned(other, o.GetUID()) {
			return true
		}
	}
	return false
}

// waitForOwned lets an object stay until those that it owns are gone, as a deletion in the foreground does.
func (s *Server) waitForOwned(k key) {
	if o := s.objects[k]; o != nil && (s.owns(o) || s.memory.held(k)) {
		next := o.DeepCopy()
		next.SetFinalizers(append(next.GetFinalizers(), metav1.FinalizerDeleteDependents))
		s.store(k, next, "MODIFIED")
		s.collect(k, o)
	}
}

// release ends the deletion of the owners of an object that is gone.
func (s *Server) release(gone *unstructured.Unstructured) {
	for k, o := range s.objects {
		rest := slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
		if !owned(gone, o.GetUID()) || len(rest) == len(o.GetFinalizers()) || s.owns(o) {
			continue
		}
		next := o.DeepCopy()
		next.SetFinalizers(rest)
		if len(rest) > 0 {
			s.store(k, next, "MODIFIED")
			continue
		}
		s.end(k, next)
	}
}

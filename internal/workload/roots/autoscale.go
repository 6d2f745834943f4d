package roots

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/kinds"
	"github.com/kcpctl/kcpctl/internal/workload/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// autoscaler returns the autoscaler of a root, or nil.
func (s *Scheduler) autoscaler(i item, root *unstructured.Unstructured) *unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, kind := range kinds.All() {
		if kind.TargetPath == nil {
			continue
		}
		if r, ok := s.resource(kind.GroupResource()); ok {
			for _, o := range s.set.In(r, i.Cluster, i.Namespace) {
				all = append(all, o.Unstructured)
			}
		}
	}
	return splitter.Scaled(root, all)
}

// rescaled reports whether leaves of a workload have AnnotationScaled without an autoscaler, or the other way round.
func (sc *scene) rescaled(i item, root watch.Object) bool {
	scaled := sc.scaled[splitter.TargetOf(refOf(i), root.Unstructured)]
	for _, leaf := range sc.present[refOf(i).String()] {
		_, divided, _ := unstructured.NestedInt64(leaf.Object, "spec", "replicas")
		if leaf.GetDeletionTimestamp() == nil && divided && scaled != (leaf.GetAnnotations()[api.AnnotationScaled] != "") {
			return true
		}
	}
	return false
}

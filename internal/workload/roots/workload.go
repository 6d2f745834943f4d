package roots

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/kinds"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// recreates is the strategy of a Deployment whose pods of one version end before those of the next one start.
const recreates = "Recreate"

// workloadOf returns what is to be assigned. The error lists mistakes in annotations.
func (s *Scheduler) workloadOf(i item, root *unstructured.Unstructured, clusters []*api.Cluster) (schedule.Workload, error) {
	claims := s.claims(i, root)
	data := len(claims) > 0 || kinds.KeepsData(root)
	recreate, _, _ := unstructured.NestedString(root.Object, "spec", "strategy", "type")
	alone := recreate == recreates
	spread, _ := schedule.DefaultSpread(i.GroupResource(), data || alone)
	hints, err := schedule.ParseHints(root.GetAnnotations(), s.hintsOf(i), spread)
	if err == nil {
		err = schedule.CheckSpread(hints, i.GroupResource(), data)
	}
	w := schedule.Workload{
		Key: i.Key.String(), Hints: hints, Requests: requestsOf(root), Pinned: data, Finished: splitter.IsFinished(root),
		Alone: alone || hints.Spread == schedule.Single,
		Goal:  schedule.GoalOf(root.GetAnnotations()[api.AnnotationExplain]),
	}
	w.Replicas = s.replicasOf(i, root, w)
	for _, c := range clusters {
		for _, claim := range claims {
			k := claim.Key
			k.Name = api.LeafName(k.Name, c.Name)
			if _, ok := s.set.Get(claim.GroupVersionResource, k); ok && w.Home == "" {
				w.Home = c.Name
			}
		}
	}
	return w, err
}

// replicasOf returns the replicas of a workload. If its user does not say how many, its autoscaler does. Without the autoscaler, those that were
// divided before stay, as in Kubernetes.
func (s *Scheduler) replicasOf(i item, root *unstructured.Unstructured, w schedule.Workload) int64 {
	if n, ok, _ := unstructured.NestedInt64(root.Object, "spec", "replicas"); ok {
		return n
	}
	if scaler := s.autoscaler(i, root); scaler != nil {
		return max(1, splitter.BoundsOf(scaler).Min)
	}
	before := int64(0)
	if w.Hints.Spread == schedule.Divide {
		for _, n := range w.Goal {
			before += n
		}
	}
	return max(1, before)
}

// hintsOf returns the annotations of the namespace of a workload.
func (s *Scheduler) hintsOf(i item) map[string]string {
	if o, ok := s.set.Get(api.Namespaces(), watch.Key{Cluster: i.Cluster, Name: i.Namespace}); ok {
		return o.GetAnnotations()
	}
	return nil
}

// claims returns the PersistentVolumeClaims that a workload names.
func (s *Scheduler) claims(i item, root *unstructured.Unstructured) []item {
	var out []item
	for _, d := range splitter.Dependencies(root) {
		if r, ok := s.resource(d.GroupResource); ok && splitter.KeepsData(d.GroupResource) {
			out = append(out, item{r, watch.Key{Cluster: i.Cluster, Namespace: i.Namespace, Name: d.Name}})
		}
	}
	return out
}

// resource returns the version of a resource that is watched.
func (s *Scheduler) resource(gr schema.GroupResource) (schema.GroupVersionResource, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.published.watched() {
		if r.GroupResource() == gr {
			return r, true
		}
	}
	return schema.GroupVersionResource{}, false
}

// shareOf returns what a cluster has of a workload.
func shareOf(leaf *unstructured.Unstructured) schedule.Share {
	replicas, ok, _ := unstructured.NestedInt64(leaf.Object, "spec", "replicas")
	if !ok {
		replicas = 1
	}
	available, ok, _ := unstructured.NestedInt64(leaf.Object, "status", "availableReplicas")
	if !ok {
		available, _, _ = unstructured.NestedInt64(leaf.Object, "status", "readyReplicas")
	}
	return schedule.Share{Replicas: replicas, Available: available}
}

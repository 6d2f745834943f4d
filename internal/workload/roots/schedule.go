package roots

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// schedule makes the leaves and the status of a root what they should be. It returns when to look again, or zero.
func (s *Scheduler) schedule(ctx context.Context, i item) (again time.Duration, _ error) {
	root, ok := s.set.Get(i.GroupVersionResource, i.Key)
	if !ok || root.GetDeletionTimestamp() != nil || !splitter.IsRoot(root.Unstructured) {
		s.forget(i)
		return 0, nil // kcp deletes the leaves of a root with it
	}
	if splitter.Follows(i.GroupResource(), root.Unstructured) {
		return 0, nil // follow writes its leaves
	}
	if !s.set.ListedAt(watch.Source{Endpoint: root.Endpoint, Resource: api.Namespaces()}) {
		return startInterval, nil // without the annotations of the namespace, it would go elsewhere first
	}
	s.mu.Lock()
	clusters := s.clusters
	s.mu.Unlock()
	leaves := s.leaves(i, root.Unstructured, clusters)
	previous := map[string]schedule.Share{}
	for name, leaf := range leaves {
		if splitter.IsLeafOf(leaf, root.Unstructured) && leaf.GetDeletionTimestamp() == nil {
			previous[name] = shareOf(leaf)
		}
	}
	w, hintsErr := s.workloadOf(i, root.Unstructured, clusters)
	d := s.decide(i, root.Unstructured, w, clusters, previous, leaves, hintsErr == nil)
	s.needBinding(i.Cluster, slices.Collect(maps.Keys(d.Next)))
	changes, err := changesOf(root.Unstructured, w, d, leaves, s.Now())
	if err != nil {
		return 0, err
	}
	changes.Delete = onKnown(changes.Delete, clusters)
	if changed, err := s.write(ctx, i, root, changes); changed || err != nil {
		return 0, err // the leaves come back with the watch, and the status follows: it does not delay others that wait
	}
	if err := s.writeStatus(ctx, i, root, d, leaves, condition(d, changes, hintsErr, s.missing(i, root), s.Now())); err != nil {
		return 0, err
	}
	if !d.Done(previous) {
		again = untilMoves(leaves, s.Now())
	}
	return again, nil
}

// onKnown returns the leaves whose Cluster exists. A Cluster that is removed waits for its leaves, so one that is missing was lost, such as
// with a restored backup of the compute workspace: when it is registered again, its leaves must not be on their way out.
func onKnown(leaves []*unstructured.Unstructured, clusters []*api.Cluster) []*unstructured.Unstructured {
	return slices.DeleteFunc(leaves, func(leaf *unstructured.Unstructured) bool {
		return !slices.ContainsFunc(clusters, func(c *api.Cluster) bool { return c.Name == leaf.GetLabels()[api.LabelCluster] })
	})
}

// leaves returns the objects with the names of leaves, by cluster: of the clusters that there are, and of those that had a leaf.
func (s *Scheduler) leaves(i item, root *unstructured.Unstructured, clusters []*api.Cluster) map[string]*unstructured.Unstructured {
	names := map[string]bool{}
	for _, c := range clusters {
		names[c.Name] = true
	}
	var placement api.Placement
	if json.Unmarshal([]byte(root.GetAnnotations()[api.AnnotationPlacement]), &placement) == nil {
		for name := range placement {
			names[name] = true
		}
	}
	out := map[string]*unstructured.Unstructured{}
	for name := range names {
		k := i.Key
		k.Name = api.LeafName(root.GetName(), name)
		if o, ok := s.set.Get(i.GroupVersionResource, k); ok {
			out[name] = o.Unstructured
		}
	}
	return out
}

// changesOf returns what has to be written to reach the next step.
func changesOf(
	root *unstructured.Unstructured, w schedule.Workload, d schedule.Decision, leaves map[string]*unstructured.Unstructured, now time.Time,
) (splitter.Changes, error) {
	_, divisible, _ := unstructured.NestedInt64(root.Object, "spec", "replicas")
	shares := map[string]splitter.Share{}
	for name, share := range d.Next {
		next := splitter.Share{Surge: share.Surge, Moves: movesTo(leaves[name], d.Moved[name], now)}
		if w.Hints.Spread == schedule.Divide || divisible {
			next.Replicas = &share.Replicas
		}
		shares[name] = next
	}
	want, err := splitter.Leaves(root, shares)
	if err != nil {
		return splitter.Changes{}, err
	}
	return splitter.Compare(root, want, slices.Collect(maps.Values(leaves))), nil
}

// decided is where a workload runs after the last decision.
type decided struct {
	clusters []string
	// seen is what the places of dependencies depend on.
	seen string
}

// decide decides where a workload runs, and remembers it. One decision is made at a time, so that each one knows what others take. If it
// affects what the workload needs, that is written to the clusters at the same time. A mistake in an annotation must not move
// anything: what runs stays as it is.
func (s *Scheduler) decide(
	i item, root *unstructured.Unstructured, w schedule.Workload, clusters []*api.Cluster, previous map[string]schedule.Share,
	leaves map[string]*unstructured.Unstructured, valid bool,
) schedule.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.near(i, &w)
	d := schedule.Assign(w, s.candidates(i.GroupResource(), clusters), previous, budget(w.Replicas, leaves, s.Now()))
	if !valid {
		d.Next, d.Moved = previous, nil
	}
	s.reserve(i, w.Requests, d, previous, leaves)
	next := decided{clusters: slices.Sorted(maps.Keys(d.Next))}
	// Leaves that are not wanted any longer count until they are gone.
	next.seen = fmt.Sprint(next.clusters, slices.Sorted(maps.Keys(leaves)), root.GetUID(), root.GetGeneration(), root.GetLabels())
	if s.decided[i].seen != next.seen {
		s.queue.Add(namespace(i.Key))
	}
	s.decided[i] = next
	return d
}

// near sets the clusters with objects that a workload wants to be near to, or not: leaves in the same namespace, and what was decided
// about other workloads there. The scheduler is locked.
func (s *Scheduler) near(i item, w *schedule.Workload) {
	if w.Hints.Affinity == nil && w.Hints.AntiAffinity == nil {
		return
	}
	w.Affine, w.AntiAffine = map[string]bool{}, map[string]bool{}
	for _, r := range s.published.apis() {
		for _, o := range s.set.In(r, i.Cluster, i.Namespace) {
			other := item{r, watch.KeyOf(o.Unstructured)}
			on := s.decided[other].clusters
			if c := o.GetLabels()[api.LabelCluster]; c != "" {
				other.Name, on = s.rootName(r, other.Key), []string{c}
			}
			if other == i {
				continue
			}
			for _, c := range on {
				if w.Hints.Affinity != nil && w.Hints.Affinity.Matches(labels.Set(o.GetLabels())) {
					w.Affine[c] = true
				}
				if w.Hints.AntiAffinity != nil && w.Hints.AntiAffinity.Matches(labels.Set(o.GetLabels())) {
					w.AntiAffine[c] = true
				}
			}
		}
	}
}

// forget forgets a root that is gone, or is not scheduled.
func (s *Scheduler) forget(i item) {
	s.mu.Lock()
	delete(s.decided, i)
	for _, all := range s.reserved {
		delete(all, i)
	}
	s.mu.Unlock()
	s.queue.Add(namespace(i.Key)) // also for each of its leaves that is gone
}

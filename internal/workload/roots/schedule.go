package roots

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/splitter"
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
	s.mu.Lock()
	clusters, surges := s.clusters, s.surges[i]
	s.mu.Unlock()
	leaves := s.leaves(i, root.Unstructured, clusters)
	previous := map[string]schedule.Share{}
	for name, leaf := range leaves {
		if splitter.IsLeafOf(leaf, root.Unstructured) && leaf.GetDeletionTimestamp() == nil {
			previous[name] = shareOf(leaf, surges[name])
		}
	}
	w, hintsErr := s.workloadOf(i, root.Unstructured, clusters)
	d := schedule.Assign(w, s.candidates(i.GroupResource(), clusters), previous, 0)
	if hintsErr != nil {
		// A mistake in an annotation must not move anything: what runs stays as it is.
		d.Next = previous
	}
	changes, err := changesOf(root.Unstructured, w, d, leaves)
	if err != nil {
		return 0, err
	}
	// What the workload needs is written at the same time.
	s.decide(i, root.Unstructured, d, leaves)
	if err := s.write(ctx, i, root, changes); err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.surges[i] = map[string]bool{}
	for name, share := range d.Next {
		s.surges[i][name] = share.Surge
	}
	s.mu.Unlock()
	if err := s.writeStatus(ctx, i, root, d, leaves, condition(d, changes, hintsErr, s.missing(i, root), s.Now())); err != nil {
		return 0, err
	}
	if !d.Done(previous) {
		again = moveInterval
	}
	return again, nil
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
func changesOf(root *unstructured.Unstructured, w schedule.Workload, d schedule.Decision, leaves map[string]*unstructured.Unstructured) (splitter.Changes, error) {
	_, divisible, _ := unstructured.NestedInt64(root.Object, "spec", "replicas")
	shares := map[string]splitter.Share{}
	for name, share := range d.Next {
		next := splitter.Share{}
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

// decide remembers a decision. If it affects what the workload needs, that is written to the clusters, too.
func (s *Scheduler) decide(i item, root *unstructured.Unstructured, d schedule.Decision, leaves map[string]*unstructured.Unstructured) {
	next := decided{clusters: slices.Sorted(maps.Keys(d.Next))}
	// Leaves that are not wanted any longer count until they are gone.
	next.seen = fmt.Sprint(next.clusters, slices.Sorted(maps.Keys(leaves)), root.GetUID(), root.GetGeneration())
	s.mu.Lock()
	before := s.decided[i]
	s.decided[i] = next
	s.mu.Unlock()
	if before.seen != next.seen {
		s.queue.Add(namespace(i.Key))
	}
}

// forget forgets a root that is gone, or is not scheduled.
func (s *Scheduler) forget(i item) {
	s.mu.Lock()
	_, known := s.decided[i]
	delete(s.decided, i)
	delete(s.surges, i)
	s.mu.Unlock()
	if known {
		s.queue.Add(namespace(i.Key))
	}
}

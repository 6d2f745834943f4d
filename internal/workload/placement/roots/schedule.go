package roots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// subject is a root with the state for its decision.
type subject struct {
	item
	root     watch.Object
	clusters []*api.Cluster
	// leaves are the objects with the names of leaves, by cluster, and previous are the shares.
	leaves   map[string]*unstructured.Unstructured
	previous map[string]schedule.Share
	workload schedule.Workload
	// mistakes are the errors in annotations.
	mistakes error
	// request is a request to rebalance that is not carried out yet, or "".
	request string
	// scaled means that it has an autoscaler, and freed that it had one, and that a leaf does not have the replicas
	// from that yet. Recorded means that another leaf has: then the goal of the root has them, too.
	scaled, freed, recorded bool
	// leaving are the clusters that a workload with an autoscaler leaves, see leave.
	leaving []string
	// moved are the moves, including the ones of the present decision. None: it moves nothing.
	moved moves
	now   time.Time
}

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
	if !s.knows(root.Endpoint) {
		return startInterval, nil
	}
	sub := s.subject(i, root)
	d := s.decide(sub)
	s.needBinding(i.Cluster, slices.Collect(maps.Keys(d.Next)))
	changes, err := changesOf(sub, d)
	if err != nil {
		return 0, err
	}
	changes.Delete = onKnown(changes.Delete, sub.clusters)
	if err := errors.Join(s.writeMoves(ctx, sub), s.writeGoal(ctx, sub, d)); err != nil {
		return 0, err
	}
	changed, refused, again, err := s.writeLeaves(ctx, sub, changes)
	if changed || again > 0 || err != nil {
		return again, err // the leaves come back with the watch, and the status follows: it does not delay others that wait
	}
	done := d.Done(sub.previous) && refused == ""
	scheduled := refused.condition(condition(d, changes, sub.mistakes, s.lacks(i, root), sub.now))
	if err := s.writeStatus(ctx, sub, d, done, scheduled); err != nil {
		return 0, err
	}
	return refused.retry(s.lookAgain(sub, done)), nil
}

// writeLeaves writes the leaves of a workload, and before its first leaf in a cluster the leaves of what protects its
// pods. It returns whether a leaf has changed, why one is refused, and when to look again if it is not known yet what
// protects the pods, or zero.
func (s *Scheduler) writeLeaves(ctx context.Context, sub *subject, changes splitter.Changes) (
	changed bool, refused refusal, again time.Duration, err error) {
	refused, again, err = s.protect(ctx, sub.item, changes, sub.leaves)
	if refused != "" || again > 0 || err != nil {
		return false, refused, again, err
	}
	changed, refused, err = s.write(ctx, sub.item, sub.root, changes)
	if changed {
		s.countMoves(sub)
	}
	return changed, refused, 0, err
}

// subject returns a root with the state for its decision.
func (s *Scheduler) subject(i item, root watch.Object) *subject {
	s.mu.Lock()
	clusters := s.clusters
	request := s.rebalance
	s.mu.Unlock()
	sub := &subject{item: i, root: root, clusters: clusters, now: s.Now(), previous: map[string]schedule.Share{}}
	sub.leaves = s.leaves(i, root.Unstructured, clusters)
	sub.scaled = s.autoscaler(i, root.Unstructured) != nil
	for name, leaf := range sub.leaves {
		switch {
		case splitter.IsRoot(leaf): // an object of the user
		case leaf.GetDeletionTimestamp() != nil:
			sub.previous[name] = schedule.Share{Replicas: max(shareOf(leaf).Replicas, existing(leaf)), Ending: true}
		case splitter.IsLeafOf(leaf, root.Unstructured):
			sub.previous[name] = shareOf(leaf)
		}
	}
	sub.free()
	sub.workload, sub.mistakes = s.workloadOf(sub)
	if own := root.GetAnnotations()[api.AnnotationRebalanceRequest]; own != "" {
		request = own
	}
	if request != root.GetAnnotations()[api.AnnotationRebalanced] {
		sub.request = request
	}
	sub.workload.Rebalance = sub.request != ""
	return sub
}

// lookAgain returns when to look at a root again because of time alone, or zero.
func (s *Scheduler) lookAgain(sub *subject, done bool) (again time.Duration) {
	for _, c := range sub.clusters {
		share, has := sub.previous[c.Name]
		if !has {
			continue
		}
		if w := sub.workload; !fleet.IsReady(c) && w.Hints.FailoverAfter > 0 {
			again = sooner(again, max(0, untilLost(c, w, sub.now)))
		}
		if !share.Ending && share.Available < share.Replicas {
			again = sooner(again, stuckAfter)
		}
	}
	if !done {
		s.mu.Lock()
		again = sooner(again, s.decided[sub.item].moved.until(sub.now))
		s.mu.Unlock()
	}
	return again
}

// onKnown returns the leaves whose Cluster exists. A Cluster that is removed waits for its leaves, so one that is
// missing was lost, such as with a restored backup of the compute workspace: when it is registered again, its leaves
// must not be on their way out.
func onKnown(leaves []*unstructured.Unstructured, clusters []*api.Cluster) []*unstructured.Unstructured {
	return slices.DeleteFunc(leaves, func(leaf *unstructured.Unstructured) bool {
		return !slices.ContainsFunc(clusters,
			func(c *api.Cluster) bool { return c.Name == leaf.GetLabels()[api.LabelCluster] })
	})
}

// leaves returns the objects with the names of leaves, by cluster: of the clusters that there are, and of those that
// had a leaf. Clusters that are given up are ignored, as if they were gone.
func (s *Scheduler) leaves(i item, root *unstructured.Unstructured,
	clusters []*api.Cluster) map[string]*unstructured.Unstructured {
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
	s.mu.Lock()
	maps.DeleteFunc(names, func(name string, _ bool) bool { return s.givenUp[name] })
	s.mu.Unlock()
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
func changesOf(sub *subject, d schedule.Decision) (splitter.Changes, error) {
	_, divisible, _ := unstructured.NestedInt64(sub.root.Object, "spec", "replicas")
	shares := map[string]splitter.Share{}
	for name, share := range d.Next {
		next := splitter.Share{}
		if sub.workload.Hints.Spread == schedule.Divide || divisible {
			next.Replicas = &share.Replicas
			next.Scaled = sub.scaled
		}
		shares[name] = next
	}
	want, err := splitter.Leaves(sub.root.Unstructured, shares)
	if err != nil {
		return splitter.Changes{}, err
	}
	return splitter.Compare(sub.root.Unstructured, want, slices.Collect(maps.Values(sub.leaves))), nil
}

// decide decides where a workload runs, and remembers it. One decision is made at a time, so that each one knows what
// others take. If it affects what the workload needs, that is written to the clusters at the same time. A mistake in an
// annotation must not move anything that runs.
func (s *Scheduler) decide(sub *subject) schedule.Decision {
	neighbours := s.neighbours(sub.item, sub.workload.Hints)
	s.deciding.Lock()
	defer s.deciding.Unlock()
	s.mu.Lock()
	last := s.decided[sub.item]
	s.near(neighbours, &sub.workload)
	s.mu.Unlock()
	if last.uid != sub.root.GetUID() {
		last.moved = movesOf(sub.root.Unstructured).now(sub.now) // of the previous controller
	}
	candidates := s.candidates(sub.item, sub.workload, sub.clusters, sub.previous, sub.now)
	next := decided{moved: last.moved, stuck: stuckSince(last.stuck, sub, candidates), uid: sub.root.GetUID()}
	for cluster, since := range next.stuck {
		if share := sub.previous[cluster]; sub.now.Sub(since) >= stuckAfter {
			share.Stuck = share.Replicas - share.Available
			sub.previous[cluster] = share
		}
	}
	d := sub.assign(candidates, last.moved)
	next.shares = sharesOf(d)
	next.replicas = dividedBy(sub.workload, d)
	next.leaving = sub.leaving
	if d.Moved > 0 {
		sub.moved = last.moved.add(d.Moved, sub.now)
	}
	s.reserved.record(sub.item, sub.workload.Requests, d, sub.previous, sub.leaves, sub.now)
	next.clusters = slices.Sorted(maps.Keys(d.Next))
	// Leaves that are not wanted count until they are gone.
	next.seen = fmt.Sprint(next.clusters, next.replicas, slices.Sorted(maps.Keys(sub.leaves)), sub.root.GetUID(),
		sub.root.GetGeneration(), sub.root.GetLabels())
	waits := len(d.Goal) == 0 || d.Unplaced > 0 || d.Message != "" || sub.workload.Rebalance ||
		len(next.stuck) > 0
	s.mu.Lock()
	defer s.mu.Unlock()
	if last.seen != next.seen {
		s.queue.Add(namespace(sub.Key))
	}
	s.remember(sub.item, next, waits, sub.workload.Hints.Spread == schedule.Duplicate)
	return d
}

// assign divides a workload.
func (sub *subject) assign(candidates []schedule.Cluster, moved moves) schedule.Decision {
	d := schedule.Assign(sub.workload, candidates, sub.previous, moved.budget(sub.workload.Replicas, sub.now))
	if sub.leave(d) {
		d = schedule.Assign(sub.workload, candidates, sub.previous, moved.budget(sub.workload.Replicas, sub.now))
	}
	if sub.mistakes != nil {
		d.Next, d.Moved = sub.mistaken(), 0
	}
	return d
}

// dividedBy returns the replicas of the next step by cluster, or nil if they are not divided.
func dividedBy(w schedule.Workload, d schedule.Decision) map[string]int64 {
	if w.Hints.Spread != schedule.Divide {
		return nil
	}
	return sharesOf(d)
}

// sharesOf returns the replicas of the next step by cluster.
func sharesOf(d schedule.Decision) map[string]int64 {
	out := map[string]int64{}
	for name, share := range d.Next {
		out[name] = share.Replicas
	}
	return out
}

// staying returns the shares as they are.
func (sub *subject) staying() map[string]schedule.Share {
	out := maps.Clone(sub.previous)
	maps.DeleteFunc(out, func(_ string, share schedule.Share) bool { return share.Ending })
	return out
}

// mistaken returns the shares of a workload with a mistake in an annotation: they are not moved. A change of its
// replicas applies only if it is certain without the annotation: to zero, or in the only cluster.
func (sub *subject) mistaken() map[string]schedule.Share {
	out := sub.staying()
	for name, share := range out {
		if wanted := sub.workload.Replicas; wanted == 0 || len(out) == 1 {
			share.Replicas = wanted
			out[name] = share
		}
	}
	return out
}

// forget forgets a root that is gone, or is not scheduled.
func (s *Scheduler) forget(i item) {
	s.deciding.Lock()
	s.reserved.forget(i)
	s.deciding.Unlock()
	s.mu.Lock()
	s.unlink(i)
	delete(s.decided, i)
	s.mu.Unlock()
	s.queue.Add(namespace(i.Key)) // also for each of its leaves that is gone
}

package roots

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// schedule makes the leaves and the status of a root what they should be. It returns when to look again, or zero.
func (s *Scheduler) schedule(ctx context.Context, i item) (again time.Duration, _ error) {
	root, ok := s.view.set().Get(i.GroupVersionResource, i.Key)
	if !ok || root.GetDeletionTimestamp() != nil || !splitter.IsRoot(root.Unstructured) {
		s.decider.forget(i)
		s.queue.Add(namespace(i.Key)) // also for each of its leaves that is gone
		return 0, nil                 // kcp deletes the leaves of a root with it
	}
	if splitter.Follows(i.GroupResource(), root.Unstructured) {
		return 0, nil // follow writes its leaves
	}
	if !s.view.knows(root.Endpoint) {
		return startInterval, nil
	}
	sub := s.view.subject(i, root)
	d, affects := s.decider.decide(sub)
	if affects {
		s.queue.Add(namespace(i.Key))
	}
	changes, err := changesOf(sub, d)
	if err != nil {
		return 0, err
	}
	changes.Delete = onKnown(changes.Delete, sub.clusters)
	if err := errors.Join(s.writer.writeMoves(ctx, sub), s.writer.writeGoal(ctx, sub, d)); err != nil {
		return 0, err
	}
	changed, refused, again, err := s.writeLeaves(ctx, sub, changes)
	if changed || again > 0 || err != nil {
		return again, err // the status follows when the watch shows the leaves: it does not delay others that wait
	}
	done := d.Done(sub.previous) && refused == ""
	scheduled := refused.condition(condition(d, changes, sub.mistakes, s.followers.lacks(i, root)))
	if err := s.writer.writeStatus(ctx, sub, d, done, scheduled); err != nil {
		return 0, err
	}
	return refused.retry(s.lookAgain(sub, done)), nil
}

// writeLeaves writes the leaves of a workload, and before its first leaf in a cluster the leaves of what protects its
// pods. It returns whether a leaf has changed, why one is refused, and when to look again if it is not known yet what
// protects the pods, or zero.
func (s *Scheduler) writeLeaves(ctx context.Context, sub *subject, changes splitter.Changes) (
	changed bool, refused refusal, again time.Duration, err error) {
	refused, again, err = s.followers.protect(ctx, sub.item, changes, sub.leaves)
	if refused != "" || again > 0 || err != nil {
		return false, refused, again, err
	}
	changed, refused, err = s.writer.write(ctx, sub.item, sub.root, changes)
	if changed {
		s.decider.decisions.count(sub.item, sub.moved)
	}
	return changed, refused, 0, err
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
		last, _ := s.decider.decisions.of(sub.item)
		again = sooner(again, last.moved.until(sub.now))
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

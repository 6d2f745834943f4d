package roots

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// State is the state of the controller that decisions depend on, besides the objects of workspaces.
type State struct {
	Clusters []*api.Cluster
	// Published are the published APIs. Nil: they are not known.
	Published *Published
	// Exports have the claims of the APIExports of the clusters, by name. Nil: they are not known.
	Exports map[string][]any
	// Rebalance is the last request to rebalance all roots (see api.AnnotationRebalanceRequest).
	Rebalance string
}

// fingerprint is what decisions depend on of a cluster.
type fingerprint struct {
	// state changes what runs there, and room only what can be added.
	state, room string
}

// fingerprintOf returns what decisions depend on of a cluster. What pods request changes all the time, and is seen when
// a decision is made for another reason.
func fingerprintOf(c *api.Cluster, serving serving, now time.Time) fingerprint {
	evicted := meta.FindStatusCondition(c.Status.Conditions, api.ConditionEvicted)
	reason := ""
	if evicted != nil {
		reason = string(evicted.Status) + evicted.Reason
	}
	f := fingerprint{state: fmt.Sprint(
		c.UID, c.Labels, c.Spec.Unschedulable, c.Draining(), c.Status.APIs, fleet.IsReady(c), settled(c, now),
		serving.recent(c, now), notReadyReason(c), reason, c.Spec.WorkspaceSelector,
	)}
	if c.Status.Capacity != nil {
		for _, name := range slices.Sorted(maps.Keys(c.Status.Capacity.Allocatable)) {
			q := c.Status.Capacity.Allocatable[name]
			f.room += fmt.Sprint(name, q.String(), " ")
		}
	}
	return f
}

// affected are the workloads that a change of the clusters affects: workloads with a share in a cluster whose state has
// changed, and, if any cluster has changed, workloads that wait for one, or that go to each. The scheduler is locked.
func (s *Scheduler) affected(next map[string]fingerprint) map[item]bool {
	out := map[item]bool{}
	anyState := false
	anyRoom := false
	for name := range maps.Keys(union(s.fingerprints, next)) {
		was := s.fingerprints[name]
		is := next[name]
		if was.state != is.state {
			anyState = true
			maps.Copy(out, s.on[name])
		}
		anyRoom = anyRoom || was.room != is.room
	}
	if anyState || anyRoom {
		maps.Copy(out, s.waiting)
	}
	if anyState {
		maps.Copy(out, s.everywhere)
	}
	return out
}

func union(a, b map[string]fingerprint) map[string]fingerprint {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]fingerprint{}
	}
	maps.Copy(out, b)
	return out
}

// decided is where a workload runs after the last decision.
type decided struct {
	clusters []string
	// seen is the state that the places of dependencies depend on.
	seen string
	// replicas are the replicas of the next step, if they are divided.
	replicas map[string]int64
	// leaving are the clusters that a workload with an autoscaler leaves.
	leaving []string
	// shares are the replicas by cluster, for a root with a UID.
	shares map[string]int64
	uid    types.UID
	// moved are the last moves.
	moved moves
	// stuck has since when replicas have not been available, by cluster.
	stuck map[string]time.Time
}

// remember keeps a decision, and what would change it. The scheduler is locked.
func (s *Scheduler) remember(i item, next decided, waits, everywhere bool) {
	s.unlink(i)
	s.decided[i] = next
	for _, c := range next.clusters {
		if s.on[c] == nil {
			s.on[c] = map[item]bool{}
		}
		s.on[c][i] = true
	}
	if waits {
		s.waiting[i] = true
	}
	if everywhere {
		s.everywhere[i] = true
	}
}

// unlink removes a workload from the indexes. The scheduler is locked.
func (s *Scheduler) unlink(i item) {
	for _, c := range s.decided[i].clusters {
		delete(s.on[c], i)
	}
	delete(s.waiting, i)
	delete(s.everywhere, i)
}

// candidates returns the clusters as a decision sees them: clusters that the workspace may use, and clusters with a
// share. The caller holds the lock of decisions.
func (s *Scheduler) candidates(i item, w schedule.Workload, clusters []*api.Cluster, previous map[string]schedule.Share,
	now time.Time) []schedule.Cluster {
	var out []schedule.Cluster
	path := ""
	if selective(clusters) {
		path = s.path(i.Cluster)
	}
	gr := i.GroupResource()
	builtIn := slices.ContainsFunc(api.Dependencies(),
		func(r schema.GroupVersionResource) bool { return r.GroupResource() == gr })
	for _, c := range clusters {
		access := accessOf(c, path)
		if _, has := previous[c.Name]; access == schedule.Refused && !has {
			continue // a user does not learn about it
		}
		free := s.reserved.of(c.Name).free(c.Status.Capacity, i.Cluster, now)
		if share, has := previous[c.Name]; !has || share.Ending {
			free = s.reserved.of(c.Name).without(i, free)
		}
		status := c.API(gr)
		if builtIn {
			status.State = api.APIPublished // every cluster serves it
		}
		current := builtIn || s.serves(c, gr, now)
		ready := settled(c, now)
		out = append(out, schedule.Cluster{
			Name: c.Name, Labels: c.Labels, Ready: fleet.IsReady(c), Settled: ready && current, Stale: ready && !current,
			Problem: notReadyReason(c), Lost: lost(c, w, now),
			Unschedulable: c.Spec.Unschedulable, Draining: c.Draining(), Access: access, API: status, Free: free,
		})
	}
	return out
}

// accessOf returns whether a workspace with a path may use a cluster.
func accessOf(c *api.Cluster, path string) schedule.Access {
	switch {
	case c.Spec.WorkspaceSelector == nil:
		return schedule.Granted
	case path == "":
		return schedule.Unknown
	case c.Spec.WorkspaceSelector.Selects(path):
		return schedule.Granted
	}
	return schedule.Refused
}

// usable reports whether a workspace is known to be allowed to use a cluster.
func (s *Scheduler) usable(workspace, cluster string) bool {
	s.mu.Lock()
	at := slices.IndexFunc(s.clusters, func(c *api.Cluster) bool { return c.Name == cluster })
	if at < 0 {
		s.mu.Unlock()
		return true // it is being removed, or was lost
	}
	c := s.clusters[at]
	s.mu.Unlock()
	return c.Spec.WorkspaceSelector == nil || accessOf(c, s.path(workspace)) == schedule.Granted
}

// path returns the path of a workspace, or "" if it is not known. kcp keeps it in an annotation of the LogicalCluster.
func (s *Scheduler) path(workspace string) string {
	o, ok := s.set.Get(kcpapi.LogicalCluster.GVR(), watch.Key{Cluster: workspace, Name: kcpapi.LogicalClusterName})
	if !ok {
		return ""
	}
	return o.GetAnnotations()[kcpapi.AnnotationPath]
}

// selective reports whether a cluster selects workspaces, so that their paths have to be known.
func selective(clusters []*api.Cluster) bool {
	return slices.ContainsFunc(clusters, func(c *api.Cluster) bool { return c.Spec.WorkspaceSelector != nil })
}

// notReadyReason returns the reason why a cluster is not ready, or "". It has no message: that can differ each time,
// and it is written to all roots.
func notReadyReason(c *api.Cluster) string {
	if r := meta.FindStatusCondition(c.Status.Conditions, api.ConditionReady); r != nil &&
		r.Status != metav1.ConditionTrue {
		return r.Reason
	}
	return ""
}

// lost reports whether other clusters run the share of a cluster, too. A condition of the Cluster has that. A workload
// can want another time, or never. One that must be alone needs an annotation for that: what does not answer can still
// run.
func lost(c *api.Cluster, w schedule.Workload, now time.Time) bool {
	if fleet.IsReady(c) || w.Hints.Failover == api.FailoverNever || w.Alone && w.Hints.Failover == "" {
		return false
	}
	evicted := meta.FindStatusCondition(c.Status.Conditions, api.ConditionEvicted)
	switch {
	case evicted == nil:
		return false
	case w.Hints.FailoverAfter > 0 &&
		(evicted.Status == metav1.ConditionTrue || evicted.Reason == api.ReasonEvictAfter):
		return untilLost(c, w, now) <= 0
	}
	return fleet.IsEvicted(c)
}

// untilLost returns the time until a cluster is lost for a workload with its own time.
func untilLost(c *api.Cluster, w schedule.Workload, now time.Time) time.Duration {
	since := fleet.Since(c)
	if since.IsZero() {
		return w.Hints.FailoverAfter
	}
	return w.Hints.FailoverAfter - now.Sub(since)
}

// stuckAfter is how long replicas are not available until they may move to a cluster with room.
const stuckAfter = time.Minute

// stuckSince returns since when replicas of a workload have not been available, by cluster. What is not known of a
// cluster whose status is stale is not a reason to move anything.
func stuckSince(before map[string]time.Time, sub *subject, candidates []schedule.Cluster) map[string]time.Time {
	out := map[string]time.Time{}
	for cluster, share := range sub.previous {
		stale := slices.ContainsFunc(candidates, func(c schedule.Cluster) bool { return c.Name == cluster && c.Stale })
		if share.Ending || share.Available >= share.Replicas || stale {
			continue
		}
		out[cluster] = sub.now
		if since, ok := before[cluster]; ok {
			out[cluster] = since
		}
	}
	return out
}

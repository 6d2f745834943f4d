package roots

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// candidates returns the clusters as a decision sees them: clusters that the workspace may use, and clusters with a
// share.
func (d *decider) candidates(sub *subject) []schedule.Cluster {
	var out []schedule.Cluster
	path := ""
	if selective(sub.clusters) {
		path = d.path(sub.Cluster)
	}
	gr := sub.GroupResource()
	builtIn := slices.ContainsFunc(api.Dependencies(),
		func(r schema.GroupVersionResource) bool { return r.GroupResource() == gr })
	for _, c := range sub.clusters {
		access := accessOf(c, path)
		share, has := sub.previous[c.Name]
		if access == schedule.Refused && !has {
			continue // a user does not learn about it
		}
		status := c.API(gr)
		if builtIn {
			status.State = api.APIPublished // every cluster serves it
		}
		current := builtIn || sub.serving.current(c, gr, sub.now)
		ready := settled(c, sub.now)
		out = append(out, schedule.Cluster{
			Name: c.Name, Labels: c.Labels,
			Ready: fleet.IsReady(c), Settled: ready && current, Stale: ready && !current,
			Problem: notReadyReason(c), Lost: lost(c, sub.workload, sub.now),
			Unschedulable: c.Spec.Unschedulable, Draining: c.Draining(), Access: access, API: status,
			Free: d.reserved.of(c.Name).free(c.Status.Capacity, sub.item, has && !share.Ending, sub.now),
		})
	}
	return out
}

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

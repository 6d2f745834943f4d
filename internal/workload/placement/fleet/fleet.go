// Package fleet decides which clusters are evicted: other clusters run their shares, too. Objects in, conditions out.
//
// That a cluster is not ready is not evidence that its workloads do not run. So a cluster is not evicted if it only
// refuses credentials, and if it was lost together with most others: then it is more likely that the connection to all
// of them is lost.
package fleet

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

const interval = time.Minute

// IsReady reports whether a cluster runs what is scheduled to it.
func IsReady(c *api.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, api.ConditionReady)
}

// IsEvicted reports whether other clusters run the share of a cluster, too, by its condition.
func IsEvicted(c *api.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, api.ConditionEvicted) && !IsReady(c)
}

// Since returns when a cluster became not ready. It is zero if it is ready, or if nothing is known about it.
func Since(c *api.Cluster) time.Time {
	if r := notReady(c); r != nil {
		return r.LastTransitionTime.Time
	}
	return time.Time{}
}

// IsRefused reports whether a reason of the condition Ready is about how the cluster is reached: it answers, or was
// never asked. The workloads there can run.
func IsRefused(reason string) bool {
	switch reason {
	case api.ReasonUnauthorized, api.ReasonKubeconfigInvalid:
		return true
	}
	return isOther(reason)
}

// isOther reports whether a cluster is not ready because it is not the one that it should be.
func isOther(reason string) bool {
	return slices.Contains([]string{api.ReasonDuplicateCluster, api.ReasonClusterReplaced,
		api.ReasonOtherSetup}, reason)
}

// wentAway reports whether a cluster with this reason was ready before, and its signals stopped.
func wentAway(reason string) bool {
	return reason != api.ReasonSyncerNotRunning && reason != api.ReasonSchemasUnreadable && !isOther(reason)
}

func notReady(c *api.Cluster) *metav1.Condition {
	if r := meta.FindStatusCondition(c.Status.Conditions, api.ConditionReady); r != nil &&
		r.Status != metav1.ConditionTrue {
		return r
	}
	return nil
}

// Evicted returns the condition Evicted of each cluster, by name, without times. It depends on the conditions Ready and
// Evicted of all.
func Evicted(clusters []*api.Cluster, now time.Time) map[string]metav1.Condition {
	out := map[string]metav1.Condition{}
	for _, c := range clusters {
		next := decide(c, clusters, now)
		next.Type = api.ConditionEvicted
		out[c.Name] = next
	}
	return out
}

// Next returns when the next cluster is evicted unless it is ready before. It is zero if none is.
func Next(clusters []*api.Cluster, now time.Time) (next time.Time) {
	for _, c := range clusters {
		due := Since(c).Add(c.EvictAfter())
		waits := decide(c, clusters, now).Reason == api.ReasonEvictAfter && due.After(now)
		if waits && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

func decide(c *api.Cluster, clusters []*api.Cluster, now time.Time) metav1.Condition {
	ready := notReady(c)
	if ready == nil {
		return no(api.ReasonReady, "")
	}
	if kept, found := keeps(c, clusters); found {
		return kept
	}
	after := c.EvictAfter()
	if after <= 0 {
		return no(api.ReasonNeverEvicted, "spec.evictAfter is 0s: no other cluster runs its share")
	}
	if due := ready.LastTransitionTime.Add(after); now.Before(due) {
		return no(api.ReasonEvictAfter,
			"other clusters run its share, too, from "+due.UTC().Format(time.RFC3339)+" unless it is ready")
	}
	return metav1.Condition{
		Status: metav1.ConditionTrue, Reason: api.ReasonEvicted,
		Message: fmt.Sprintf("it was not ready for %s (%s): other clusters run its share, too, and what it has stays",
			after, ready.Reason),
	}
}

// keeps returns the condition of a cluster that is not ready and that does not depend on the time. A decision is kept
// until the cluster is ready: clusters that come back, or are lost, do not change the cause.
func keeps(c *api.Cluster, clusters []*api.Cluster) (kept metav1.Condition, found bool) {
	ready, last := notReady(c), meta.FindStatusCondition(c.Status.Conditions, api.ConditionEvicted)
	switch {
	case last != nil && last.Status == metav1.ConditionTrue:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: api.ReasonEvicted, Message: last.Message}, true
	case last != nil && last.Reason == api.ReasonFullDisruption:
		return no(api.ReasonFullDisruption, last.Message), true
	case IsRefused(ready.Reason):
		return no(api.ReasonCredentialsRefused, "its workloads can run while it is not used ("+ready.Reason+")"), true
	}
	if message := disruption(c, clusters); message != "" {
		return no(api.ReasonFullDisruption, message), true
	}
	return metav1.Condition{}, false
}

// disruption returns why a cluster is not the cause of its loss. It is empty if it may be.
func disruption(c *api.Cluster, clusters []*api.Cluster) string {
	ready := 0
	group := 1
	for _, other := range clusters {
		r := notReady(other)
		switch {
		case other.Name == c.Name:
		case IsReady(other):
			ready++
		case r != nil && wentAway(r.Reason) && r.LastTransitionTime.Sub(Since(c)).Abs() <= interval:
			group++
		}
	}
	const todo = "if it is lost, move its share with kcpctl cluster drain %[1]s, or give it up with kcpctl cluster " +
		"remove %[1]s --force"
	switch {
	case ready == 0:
		return fmt.Sprintf("no cluster is ready, so that no other one runs its share: "+todo, c.Name)
	case 2*group > ready+group:
		return fmt.Sprintf("%[2]d of %[3]d clusters were lost within a minute, so that the others do not run its share: "+todo, c.Name, group, ready+group)
	}
	return ""
}

func no(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

package ready

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The ranks of problems. The one that explains most comes first.
const (
	rankImage = iota
	rankCrash
	rankConfig
	rankSchedule
	rankVolume
	rankCreate
	rankEvicted
	rankProbe
	rankNone
)

// problem is why a workload is not ready.
type problem struct {
	rank int
	// reason is the pod and Kubernetes's name for the problem; cause is its message.
	reason, cause string
	detail        string
	stuck         bool
	crash         *Crash
}

func (p problem) String() string { return strings.TrimSuffix(p.reason+": "+p.cause, ": ") }

// worst returns the problem that explains most. Pods of previous revisions are about to be deleted: their problems
// explain why they still exist, but they do not last.
func (w *Workload) worst(current []*corev1.Pod, now time.Time) problem {
	found := w.creationFailures()
	for _, p := range current {
		found = append(found, w.podProblems(p, now)...)
	}
	if len(found) == 0 {
		for _, p := range w.Pods {
			if p.DeletionTimestamp == nil && !slices.Contains(current, p) {
				for _, pr := range w.podProblems(p, now) {
					pr.stuck = false
					pr.crash = nil
					found = append(found, pr)
				}
			}
		}
	}
	if len(found) == 0 {
		return problem{rank: rankNone}
	}
	return mostTelling(found)
}

// mostTelling returns the problem that explains most.
func mostTelling(found []problem) problem {
	return slices.MinFunc(found, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.reason, b.reason))
	})
}

// creationFailures are why pods are not created: a quota, or pod security. Deployments have it in a condition,
// StatefulSets only in events.
func (w *Workload) creationFailures() []problem {
	failure := func(message string) problem {
		return problem{rank: rankCreate, reason: "no pod is created", cause: message, stuck: true}
	}
	conditions, _, _ := unstructured.NestedSlice(w.Object.Object, "status", "conditions")
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		if message, _ := m["message"].(string); m["type"] == "ReplicaFailure" && m["status"] == "True" {
			return []problem{failure(message)}
		}
	}
	if int64(len(w.Pods)) >= w.number(1, "spec", "replicas") {
		return nil
	}
	if e := w.lastEvent(w.Object.GetKind(), w.Object.GetName(), "FailedCreate"); e != nil {
		return []problem{failure(e.Message)}
	}
	return nil
}

// lastEvent returns the newest warning about an object with one of some reasons, or nil.
func (w *Workload) lastEvent(kind, name string, reasons ...string) *corev1.Event {
	var last *corev1.Event
	for _, e := range w.Events {
		o := e.InvolvedObject
		if o.Kind == kind && o.Name == name && slices.Contains(reasons, e.Reason) &&
			(last == nil || seen(last).Before(seen(e))) {
			last = e
		}
	}
	return last
}

// seen returns when an event happened last.
func seen(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	if !e.EventTime.IsZero() {
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// oneLine shortens a message to one line of at most 240 characters.
func oneLine(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if r := []rune(message); len(r) > 240 {
		return string(r[:239]) + "…"
	}
	return message
}

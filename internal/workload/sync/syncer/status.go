package syncer

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// outcome is the condition Synced of a leaf.
type outcome struct {
	reason, message string
}

func synced() outcome { return outcome{reason: api.ReasonSynced} }

// statusOf returns the status for a leaf: the status of the object in the physical cluster, or the current one without
// an object there, with the condition Synced.
func statusOf(leaf, object *unstructured.Unstructured, o outcome, now time.Time) map[string]any {
	present, _, _ := unstructured.NestedMap(leaf.Object, "status")
	status := present
	if object != nil {
		status, _, _ = unstructured.NestedMap(object.Object, "status")
	}
	if status == nil {
		status = map[string]any{}
	}
	if object != nil {
		observe(status, present, leaf, object)
	}
	conditions, _ := status["conditions"].([]any)
	previous, _ := present["conditions"].([]any)
	status["conditions"] = append(without(conditions, api.ConditionSynced),
		o.condition(find(previous, api.ConditionSynced), now))
	return status
}

// observe sets observedGeneration to a generation of the leaf: the cluster has its own. It is the current one of the
// leaf only when the cluster has the spec of that generation and has acted on it. kubectl rollout status relies on it.
func observe(status, present map[string]any, leaf, object *unstructured.Unstructured) {
	observed, ok, _ := unstructured.NestedInt64(status, "observedGeneration")
	if !ok {
		return
	}
	of, err := strconv.ParseInt(object.GetAnnotations()[annotationGeneration], 10, 64)
	if err == nil && observed >= object.GetGeneration() && of <= leaf.GetGeneration() {
		status["observedGeneration"] = of
		return
	}
	delete(status, "observedGeneration")
	if before, ok := present["observedGeneration"]; ok {
		status["observedGeneration"] = before
	}
}

// condition returns the condition. It keeps the time of the previous one if the status has not changed.
func (o outcome) condition(previous map[string]any, now time.Time) map[string]any {
	status := "False"
	if o.reason == api.ReasonSynced {
		status = "True"
	}
	since := now.UTC().Format(time.RFC3339)
	if at, ok := previous["lastTransitionTime"].(string); ok && previous["status"] == status {
		since = at
	}
	return map[string]any{
		"type": api.ConditionSynced, "status": status, "reason": o.reason, "message": o.message,
		"lastTransitionTime": since,
	}
}

// outcomeIn returns the reason of the outcome that a leaf has, or "".
func outcomeIn(leaf *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(leaf.Object, "status", "conditions")
	if c := find(conditions, api.ConditionSynced); c != nil {
		reason, _ := c["reason"].(string)
		return reason
	}
	reason, _, _ := strings.Cut(leaf.GetAnnotations()[api.AnnotationSyncError], ":")
	return reason
}

func find(conditions []any, kind string) map[string]any {
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return m
		}
	}
	return nil
}

func without(conditions []any, kind string) []any {
	out := []any{}
	for _, c := range conditions {
		if m, ok := c.(map[string]any); !ok || m["type"] != kind {
			out = append(out, c)
		}
	}
	return out
}

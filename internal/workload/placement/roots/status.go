package roots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// writeStatus writes the status of a root, and the annotations with its placement and the reasons, if they change. Done
// means that the workload is as it should be.
func (w *writer) writeStatus(ctx context.Context, sub *subject, d schedule.Decision, done bool,
	scheduled metav1.Condition) error {
	i := sub.item
	placed, counted := sub.placed(d)
	gk := sub.root.GroupVersionKind().GroupKind()
	annotations, err := annotationsOf(placed, d, scheduled, w.dropped.HasConditions(gk, i.Cluster))
	if err != nil {
		return err
	}
	if done && sub.request != "" {
		annotations[api.AnnotationRebalanced] = sub.request
	}
	if !holds(sub.root.GetAnnotations(), annotations) {
		if err := w.patchRoot(ctx, sub, annotated(annotations)); err != nil {
			return err
		}
	}
	if !kinds.HasStatus(i.GroupResource()) {
		return nil
	}
	status := splitter.Aggregate(sub.root.Unstructured, counted, since(sub.root.Unstructured, scheduled, w.Now()))
	w.dropped.Strip(gk, i.Cluster, status)
	changes, content := api.StatusPatch(sub.root.Unstructured, status)
	if content == nil {
		return nil
	}
	err = w.patchRoot(ctx, sub, content, "status")
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsInvalid(err):
		return nil // the API has no status, or one without conditions
	case err == nil && w.dropped.Learn(gk, i.Cluster, changes, sub.root.Unstructured):
		return w.writeStatus(ctx, sub, d, done, scheduled) // an annotation has the reason instead
	}
	return err
}

// placed returns the leaves of a decision that there are, and the leaves whose status counts: the status of a lost
// cluster is old, and others run its share.
func (sub *subject) placed(d schedule.Decision) (placed, counted map[string]*unstructured.Unstructured) {
	placed = map[string]*unstructured.Unstructured{}
	counted = map[string]*unstructured.Unstructured{}
	for name, share := range d.Next {
		placed[name] = nil
		if leaf := sub.leaves[name]; leaf != nil &&
			splitter.IsLeafOf(leaf, sub.root.Unstructured) { // and not of an earlier root of the same name
			placed[name] = leaf
		}
		if !share.Lost {
			counted[name] = placed[name]
		}
	}
	return placed, counted
}

// annotationsOf returns the annotations of a root. Nil removes one.
func annotationsOf(
	placed map[string]*unstructured.Unstructured, d schedule.Decision, scheduled metav1.Condition, hasConditions bool,
) (map[string]any, error) {
	placement, err := json.Marshal(splitter.PlacementOf(placed))
	if err != nil {
		return nil, err
	}
	explain, err := json.Marshal(d.Chosen())
	if err != nil {
		return nil, err
	}
	out := map[string]any{api.AnnotationPlacement: string(placement), api.AnnotationExplain: string(explain),
		api.AnnotationScheduleError: nil}
	if !hasConditions && scheduled.Status != metav1.ConditionTrue {
		out[api.AnnotationScheduleError] = scheduled.Reason + ": " + scheduled.Message
	}
	return out, nil
}

func holds(have map[string]string, want map[string]any) bool {
	for k, v := range want {
		if is, ok := have[k]; ok != (v != nil) || ok && is != v {
			return false
		}
	}
	return true
}

// condition returns the condition Scheduled of a root, without a time.
func condition(d schedule.Decision, changes splitter.Changes, hints error, lacks string) metav1.Condition {
	not := func(reason, message string) metav1.Condition { return api.Not(api.ConditionScheduled, reason, message) }
	switch {
	case hints != nil:
		return not(reasonOf(hints), hints.Error())
	case len(changes.Collisions) > 0:
		first := changes.Collisions[0]
		return not(api.ReasonNameCollision,
			fmt.Sprintf("%s %s has the name of a leaf: rename it", first.GetKind(), first.GetName()))
	case len(d.Gone) > 0:
		return not(api.ReasonClusterGone, d.Message)
	case len(d.Goal) == 0 || d.Unplaced > 0:
		return not(api.ReasonNoCluster, d.Message)
	case lacks != "":
		return not(api.ReasonDependencyMissing, lacks)
	}
	return metav1.Condition{Type: api.ConditionScheduled, Status: metav1.ConditionTrue, Reason: api.ReasonScheduled}
}

func reasonOf(hints error) string {
	if notSet := (*schedule.NotSetError)(nil); errors.As(hints, &notSet) {
		return api.ReasonSpreadNotSet
	}
	return api.ReasonInvalidHint
}

// since sets the time of a condition: the present one only if its status has changed.
func since(root *unstructured.Unstructured, c metav1.Condition, now time.Time) metav1.Condition {
	c.LastTransitionTime = metav1.NewTime(now)
	if is := api.ConditionIn(root, c.Type); is != nil && is.Status == c.Status && !is.LastTransitionTime.IsZero() {
		c.LastTransitionTime = is.LastTransitionTime
	}
	return c
}

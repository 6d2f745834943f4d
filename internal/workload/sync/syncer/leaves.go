package syncer

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/sync/heartbeat"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// maxOutcome is the length of the longest message of an outcome, in bytes: API servers and webhooks of clusters write
// it.
const maxOutcome = 4 << 10

// writeStatus writes the status of a leaf, if it changes.
func (s *syncer) writeStatus(ctx context.Context, i item, leaf watch.Object, object *unstructured.Unstructured,
	o outcome) error {
	o.message = heartbeat.CutTo(o.message, maxOutcome)
	if slices.Contains(api.Dependencies(), i.GroupVersionResource) {
		_, err := s.annotate(ctx, i, leaf, o)
		return err
	}
	gk := leaf.GroupVersionKind().GroupKind()
	status := statusOf(leaf.Unstructured, object, o, s.Now())
	s.dropped.Strip(gk, i.Cluster, status)
	if !s.dropped.HasConditions(gk, i.Cluster) {
		delete(status, "conditions")
		if annotated, err := s.annotate(ctx, i, leaf, o); annotated || err != nil {
			return err // the leaf comes back with the watch, and its status follows
		}
	}
	changes, patch := api.StatusPatch(leaf.Unstructured, status)
	if patch == nil {
		return nil
	}
	live, err := s.patch(ctx, i, leaf, patch, "status")
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsInvalid(err):
		// The API has no status, or its conditions are of another type.
		_, err = s.annotate(ctx, i, leaf, o)
		return err
	case err != nil:
		return err
	}
	s.observe(Up, i)
	if s.dropped.Learn(gk, i.Cluster, changes, live) {
		s.queue.Add(i) // an annotation has the outcome instead
	}
	return nil
}

// annotate writes the outcome to a leaf that has no status. It reports whether that changes anything.
func (s *syncer) annotate(ctx context.Context, i item, leaf watch.Object, o outcome) (bool, error) {
	var want any
	if o.reason != api.ReasonSynced {
		want = o.reason + ": " + o.message
	}
	if have, ok := leaf.GetAnnotations()[api.AnnotationSyncError]; ok == (want != nil) && (!ok || have == want) {
		return false, nil
	}
	_, err := s.patch(ctx, i, leaf,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.AnnotationSyncError: want}}})
	if apierrors.IsNotFound(err) {
		return true, nil // the leaf is gone
	}
	return true, err
}

// setFinalizers sets the finalizers of a leaf, unless it has changed since it was read.
func (s *syncer) setFinalizers(ctx context.Context, i item, leaf watch.Object, all []string) error {
	_, err := s.patch(ctx, i, leaf, map[string]any{"metadata": map[string]any{
		"finalizers": all, "resourceVersion": leaf.GetResourceVersion(),
	}})
	return err
}

// patch sends a merge patch for a leaf to the endpoint that serves it.
func (s *syncer) patch(
	ctx context.Context, i item, leaf watch.Object, patch map[string]any, subresources ...string,
) (*unstructured.Unstructured, error) {
	client, err := s.up.Resource(leaf.Endpoint, i.Cluster, i.GroupVersionResource)
	if err != nil {
		return nil, err
	}
	return mergepatch.Send(ctx, client.Namespace(i.Namespace), api.ManagerSyncer, i.Name, leaf.GetUID(), patch,
		subresources...)
}

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
	others := slices.DeleteFunc(conditions, func(c any) bool {
		fields, _ := c.(map[string]any)
		return fields["type"] == api.ConditionSynced
	})
	status["conditions"] = append(others, o.condition(api.ConditionIn(leaf, api.ConditionSynced), now))
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
func (o outcome) condition(previous *metav1.Condition, now time.Time) map[string]any {
	status := "False"
	if o.reason == api.ReasonSynced {
		status = "True"
	}
	since := now
	if previous != nil && string(previous.Status) == status && !previous.LastTransitionTime.IsZero() {
		since = previous.LastTransitionTime.Time
	}
	return map[string]any{
		"type": api.ConditionSynced, "status": status, "reason": o.reason, "message": o.message,
		"lastTransitionTime": since.UTC().Format(time.RFC3339),
	}
}

// outcomeIn returns the outcome that a leaf has. It is empty if there is none.
func outcomeIn(leaf *unstructured.Unstructured) outcome {
	if c := api.ConditionIn(leaf, api.ConditionSynced); c != nil {
		return outcome{c.Reason, c.Message}
	}
	reason, message, _ := strings.Cut(leaf.GetAnnotations()[api.AnnotationSyncError], ": ")
	return outcome{reason, message}
}

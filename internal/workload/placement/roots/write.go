package roots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// write applies and deletes leaves. It reports whether that changes anything, also with an error: then they come back
// with the watch.
func (s *Scheduler) write(ctx context.Context, i item, root watch.Object,
	changes splitter.Changes) (changed bool, _ error) {
	r, err := s.set.Resource(root.Endpoint, i.Cluster, i.GroupVersionResource)
	if err != nil {
		return false, err
	}
	client := r.Namespace(i.Namespace)
	if slices.ContainsFunc(changes.Apply, func(leaf *unstructured.Unstructured) bool {
		_, exists := s.beside(i, leaf.GetName())
		return !exists
	}) {
		if err := confirm(ctx, client, i, root); err != nil {
			return false, err
		}
	}
	var errs []error // a leaf that kcp refuses does not delay the others
	for _, leaf := range changes.Apply {
		if is, ok := s.beside(i, leaf.GetName()); ok {
			leaf.SetUID(is.GetUID()) // it is not created if kcp does not have it
		}
		_, err := apply(ctx, client, i, leaf)
		changed = changed || err == nil
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return changed, err
	}
	for _, leaf := range changes.Correct {
		corrected, err := s.correct(ctx, client, i, leaf)
		if err != nil {
			return changed, err
		}
		changed = changed || corrected
	}
	for _, leaf := range changes.Delete {
		uid := leaf.GetUID()
		err := client.Delete(ctx, leaf.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return changed, fmt.Errorf("delete %s %s of %s: %w", i.GroupResource(), leaf.GetName(), i.Key, err)
		}
		changed = true
	}
	return changed, nil
}

// refusedInterval is the time until a leaf that kcp refuses is written again: a quota can be raised, or a policy
// changed.
const refusedInterval = time.Minute

// refusedBy returns the refusal of a leaf by kcp. Only a change of the root, or of something else in kcp, helps.
func refusedBy(err error) (r refusal) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return r
	}
	message := status.Status().Message
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(message, "etcdserver: request is too large") {
		return refusal{reason: api.ReasonLeafRefused, message: "kcp refuses a leaf: " + message}
	}
	return r
}

// beside returns an object beside a root, if the watch shows it.
func (s *Scheduler) beside(i item, name string) (watch.Object, bool) {
	i.Name = name
	return s.set.Get(i.GroupVersionResource, i.Key)
}

// confirm fails if a root no longer exists. After a backup of kcp was restored, the watch can show a root that the
// backup does not have. kcp deletes a leaf without its root, and with it goes what runs in the cluster, which would
// otherwise be an orphan.
func confirm(ctx context.Context, client dynamic.ResourceInterface, i item, root watch.Object) error {
	live, err := client.Get(ctx, i.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read %s %s before its leaves are written: %w", i.GroupResource(), i.Key, err)
	}
	if live.GetUID() != root.GetUID() {
		return fmt.Errorf("%s %s was created again: the watch brings it soon", i.GroupResource(), i.Key)
	}
	return nil
}

func apply(ctx context.Context, client dynamic.ResourceInterface, i item,
	leaf *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := client.Apply(ctx, leaf.GetName(), leaf,
		metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
	if err != nil {
		return nil, fmt.Errorf("apply %s %s of %s: %w", i.GroupResource(), leaf.GetName(), i.Key, err)
	}
	return live, nil
}

// correct applies a leaf that another client has changed, and reports whether that changes it. It tries each version of
// the leaf once: what kcp itself changes or drops, such as with a webhook, cannot be corrected.
func (s *Scheduler) correct(ctx context.Context, client dynamic.ResourceInterface, i item,
	leaf *unstructured.Unstructured) (bool, error) {
	at := i
	at.Name = leaf.GetName()
	is, ok := s.set.Get(i.GroupVersionResource, at.Key)
	if !ok {
		return false, nil // it is gone by now
	}
	s.mu.Lock()
	tried := s.corrected[at] == watch.VersionOf(is.Unstructured)
	s.mu.Unlock()
	if tried {
		return false, nil
	}
	leaf.SetUID(is.GetUID())
	live, err := apply(ctx, client, i, leaf)
	if err != nil {
		return false, err
	}
	if surplus := splitter.Surplus(live, leaf); surplus != nil {
		surplus["metadata"] = map[string]any{"resourceVersion": live.GetResourceVersion(), "uid": string(live.GetUID())}
		if live, err = patch(ctx, client, at, surplus); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	s.corrected[at] = watch.VersionOf(live)
	s.mu.Unlock()
	return live.GetResourceVersion() != is.GetResourceVersion(), nil
}

// writeMoves records how many replicas of a root move, before they do.
func (s *Scheduler) writeMoves(ctx context.Context, sub *subject) error {
	if sub.moved.n == 0 {
		return nil
	}
	return s.patchRoot(ctx, sub, annotated(map[string]any{api.AnnotationMoves: sub.moved.String()}))
}

// countMoves counts the moves of a decision whose leaves are written.
func (s *Scheduler) countMoves(sub *subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.decided[sub.item]; ok && sub.moved.n > 0 {
		d.moved = sub.moved
		s.decided[sub.item] = d
	}
}

// patchRoot patches a root, and keeps what it is then.
func (s *Scheduler) patchRoot(ctx context.Context, sub *subject, content map[string]any, subresources ...string) error {
	r, err := s.set.Resource(sub.root.Endpoint, sub.Cluster, sub.GroupVersionResource)
	if err != nil {
		return err
	}
	live, err := patch(ctx, r.Namespace(sub.Namespace), sub.item, content, subresources...)
	if err != nil {
		return err
	}
	sub.root.Unstructured = live
	return nil
}

func annotated(annotations map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": annotations}}
}

// writeStatus writes the status of a root, and the annotations with its placement and the reasons, if they change. Done
// means that the workload is as it should be.
func (s *Scheduler) writeStatus(ctx context.Context, sub *subject, d schedule.Decision, done bool,
	scheduled metav1.Condition) error {
	i := sub.item
	// The status of a lost cluster is old, and others run its share.
	placed := map[string]*unstructured.Unstructured{}
	counted := map[string]*unstructured.Unstructured{}
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
	gk, now := sub.root.GroupVersionKind().GroupKind(), s.Now()
	annotations, err := annotationsOf(placed, d, scheduled, s.dropped.HasConditions(gk, i.Cluster, now))
	if err != nil {
		return err
	}
	if done && sub.request != "" {
		annotations[api.AnnotationRebalanced] = sub.request
	}
	if !holds(sub.root.GetAnnotations(), annotations) {
		if err := s.patchRoot(ctx, sub, annotated(annotations)); err != nil {
			return err
		}
	}
	if !kinds.HasStatus(i.GroupResource()) {
		return nil
	}
	status := splitter.Aggregate(sub.root.Unstructured, counted, keepTime(sub.root.Unstructured, scheduled))
	s.dropped.Strip(gk, i.Cluster, status, now)
	changes, content := api.StatusPatch(sub.root.Unstructured, status)
	if content == nil {
		return nil
	}
	err = s.patchRoot(ctx, sub, content, "status")
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsInvalid(err):
		return nil // the API has no status, or one without conditions
	case err == nil && s.dropped.Learn(gk, i.Cluster, changes, sub.root.Unstructured, now):
		s.queue.Add(i) // an annotation has the reason instead
	}
	return err
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

// holds reports whether annotations are as they should be.
func holds(have map[string]string, want map[string]any) bool {
	for k, v := range want {
		if is, ok := have[k]; ok != (v != nil) || ok && is != v {
			return false
		}
	}
	return true
}

// condition returns the condition Scheduled of a root.
func condition(d schedule.Decision, changes splitter.Changes, hints error, lacks string,
	now time.Time) metav1.Condition {
	c := metav1.Condition{Type: api.ConditionScheduled, Status: metav1.ConditionTrue, Reason: api.ReasonScheduled,
		LastTransitionTime: metav1.NewTime(now)}
	switch {
	case hints != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonOf(hints), hints.Error()
	case len(changes.Collisions) > 0:
		c.Status = metav1.ConditionFalse
		c.Reason = api.ReasonNameCollision
		c.Message = fmt.Sprintf("%s %s has the name of a leaf: rename it", changes.Collisions[0].GetKind(),
			changes.Collisions[0].GetName())
	case len(d.Gone) > 0:
		c.Status = metav1.ConditionFalse
		c.Reason = api.ReasonClusterGone
		c.Message = d.Message
	case len(d.Goal) == 0 || d.Unplaced > 0:
		c.Status = metav1.ConditionFalse
		c.Reason = api.ReasonNoCluster
		c.Message = d.Message
	case lacks != "":
		c.Status = metav1.ConditionFalse
		c.Reason = api.ReasonDependencyMissing
		c.Message = lacks
	}
	return c
}

// reasonOf returns the reason of a mistake in the annotations of a root.
func reasonOf(hints error) string {
	if notSet := (*schedule.NotSetError)(nil); errors.As(hints, &notSet) {
		return api.ReasonSpreadNotSet
	}
	return api.ReasonInvalidHint
}

// keepTime keeps the time of a condition whose status has not changed.
func keepTime(root *unstructured.Unstructured, c metav1.Condition) metav1.Condition {
	if is := api.ConditionIn(root, c.Type); is != nil && is.Status == c.Status && !is.LastTransitionTime.IsZero() {
		c.LastTransitionTime = is.LastTransitionTime
	}
	return c
}

func patch(
	ctx context.Context, client dynamic.ResourceInterface, i item, content map[string]any, subresources ...string,
) (*unstructured.Unstructured, error) {
	live, err := mergepatch.Send(ctx, client, api.ManagerController, i.Name, "", content, subresources...)
	if err != nil {
		return nil, fmt.Errorf("patch %s %s in kcp: %w", i.GroupResource(), i.Key, err)
	}
	return live, nil
}

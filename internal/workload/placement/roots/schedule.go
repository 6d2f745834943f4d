package roots

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/refused"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
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
	changes.Delete = sub.onKnown(changes.Delete)
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

// writeLeaves writes the leaves of a workload, and before its first leaf in a cluster the leaves of what its pods need
// first.
func (s *Scheduler) writeLeaves(ctx context.Context, sub *subject, changes splitter.Changes) (
	changed bool, refused refusal, again time.Duration, err error) {
	refused, again, err = s.followers.protect(ctx, sub, changes)
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
func (sub *subject) onKnown(leaves []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(leaves,
		func(leaf *unstructured.Unstructured) bool { return !sub.exists(leaf.GetLabels()[api.LabelCluster]) })
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

type writer struct {
	*view
	dropped splitter.Dropped
	// corrected has the versions of leaves that another client had changed, after their correction, by item.
	corrected sync.Map
}

// write applies and deletes leaves. It reports whether that changes anything, also with an error: then they come back
// with the watch. It returns why kcp refuses one of them, which neither delays the others nor hides an error.
func (w *writer) write(ctx context.Context, i item, root watch.Object,
	changes splitter.Changes) (changed bool, why refusal, _ error) {
	client, err := w.set().Resource(root.Endpoint, i.Cluster, i.Namespace, i.GroupVersionResource)
	if err != nil {
		return false, "", err
	}
	isNew := func(leaf *unstructured.Unstructured) bool { _, exists := w.beside(i, leaf.GetName()); return !exists }
	if slices.ContainsFunc(changes.Apply, isNew) {
		if err := confirm(ctx, client, i, root); err != nil {
			return false, "", err
		}
	}
	var errs []error
	done := func(did bool, err error) {
		if r := refusedBy(err); r != "" {
			why = cmp.Or(why, r)
		} else {
			errs = append(errs, err)
		}
		changed = changed || did && err == nil
	}
	for _, leaf := range changes.Apply {
		if is, ok := w.beside(i, leaf.GetName()); ok {
			leaf.SetUID(is.GetUID()) // it is not created if kcp does not have it
		}
		_, err := apply(ctx, client, leaf)
		done(true, err)
	}
	if err := errors.Join(errs...); err != nil {
		return changed, why, err
	}
	for _, leaf := range changes.Correct {
		done(w.correct(ctx, client, i, leaf))
	}
	for _, leaf := range changes.Delete {
		uid := leaf.GetUID()
		err := client.Delete(ctx, leaf.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		done(true, err)
	}
	return changed, why, errors.Join(errs...)
}

// refusal is why kcp refuses a leaf, or "".
type refusal string

// refusedBy returns the refusal of a leaf by kcp. Only a change of the root, or of something else in kcp, helps.
func refusedBy(err error) refusal {
	if mergepatch.ChangesUID(err) { // a leaf that was created again comes with the watch
		return ""
	}
	if message := refused.By(err); message != "" {
		return refusal("kcp refuses a leaf: " + message)
	}
	return ""
}

// retry returns when to look again at a root with a leaf that kcp may have refused, or else after an interval that is
// not longer.
func (r refusal) retry(again time.Duration) time.Duration {
	if r != "" {
		return sooner(again, refused.Interval)
	}
	return again
}

// condition returns the condition Scheduled of a root with a leaf that kcp may have refused.
func (r refusal) condition(c metav1.Condition) metav1.Condition {
	if r != "" {
		return api.Not(api.ConditionScheduled, api.ReasonLeafRefused, string(r))
	}
	return c
}

// confirm fails if a root no longer exists. After a backup of kcp was restored, the watch can show a root that the
// backup does not have. kcp deletes a leaf without its root, and with it goes what runs in the cluster, which would
// otherwise be an orphan.
func confirm(ctx context.Context, client dynamic.ResourceInterface, i item, root watch.Object) error {
	live, err := client.Get(ctx, i.Name, metav1.GetOptions{})
	if err == nil && live.GetUID() != root.GetUID() {
		return errors.New("it was created again: the watch brings it soon")
	}
	return err
}

func apply(ctx context.Context, client dynamic.ResourceInterface,
	leaf *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return client.Apply(ctx, leaf.GetName(), leaf,
		metav1.ApplyOptions{FieldManager: api.ManagerController, Force: true})
}

// correct applies a leaf that another client has changed, and reports whether that changes it. It tries each version of
// the leaf once: what kcp itself changes or drops, such as with a webhook, cannot be corrected.
func (w *writer) correct(ctx context.Context, client dynamic.ResourceInterface, i item,
	leaf *unstructured.Unstructured) (bool, error) {
	at := i
	at.Name = leaf.GetName()
	is, ok := w.beside(i, leaf.GetName())
	if !ok {
		return false, nil // it is gone by now
	}
	if last, _ := w.corrected.Load(at); last == watch.VersionOf(is.Unstructured) {
		return false, nil
	}
	leaf.SetUID(is.GetUID())
	live, err := apply(ctx, client, leaf)
	if err != nil {
		return false, err
	}
	if surplus := splitter.Surplus(live, leaf); surplus != nil {
		surplus["metadata"] = map[string]any{"resourceVersion": live.GetResourceVersion()}
		live, err = mergepatch.Send(ctx, client, api.ManagerController, at.Name, live.GetUID(), surplus)
		if err != nil {
			return false, err
		}
	}
	w.corrected.Store(at, watch.VersionOf(live))
	return live.GetResourceVersion() != is.GetResourceVersion(), nil
}

func (w *writer) writeMoves(ctx context.Context, sub *subject) error {
	if sub.moved.n == 0 {
		return nil
	}
	return w.patchRoot(ctx, sub, annotated(map[string]any{api.AnnotationMoves: sub.moved.String()}))
}

func (w *writer) patchRoot(ctx context.Context, sub *subject, content map[string]any, subresources ...string) error {
	client, err := w.set().Resource(sub.root.Endpoint, sub.Cluster, sub.Namespace, sub.GroupVersionResource)
	if err != nil {
		return err
	}
	live, err := mergepatch.Send(ctx, client, api.ManagerController, sub.Name, sub.root.GetUID(),
		content, subresources...)
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
func (w *writer) writeStatus(ctx context.Context, sub *subject, d schedule.Decision, done bool,
	scheduled metav1.Condition) error {
	i := sub.item
	placed, counted := sub.placed(d)
	gk := sub.root.GroupVersionKind().GroupKind()
	var own []metav1.Condition
	if w.dropped.HasConditions(gk, i.Cluster) {
		own = append(own, since(sub.root.Unstructured, scheduled, w.Now()))
	}
	annotations, err := annotationsOf(placed, d, scheduled, own != nil)
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
	status := splitter.Aggregate(sub.root.Unstructured, counted, own...)
	w.dropped.Strip(gk, i.Cluster, status)
	changes, content := api.StatusPatch(sub.root.Unstructured, status)
	if content == nil {
		return nil
	}
	err = w.patchRoot(ctx, sub, content, "status")
	switch {
	case w.dropped.Refused(gk, i.Cluster, err):
		return w.writeStatus(ctx, sub, d, done, scheduled) // an annotation has the reason instead
	case apierrors.IsNotFound(err) || apierrors.IsInvalid(err):
		return nil // the API has no status, or another one
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

// since sets the time of a condition: the current one only if its status has changed.
func since(root *unstructured.Unstructured, c metav1.Condition, now time.Time) metav1.Condition {
	c.LastTransitionTime = metav1.NewTime(now)
	if is := api.ConditionIn(root, c.Type); is != nil && is.Status == c.Status && !is.LastTransitionTime.IsZero() {
		c.LastTransitionTime = is.LastTransitionTime
	}
	return c
}

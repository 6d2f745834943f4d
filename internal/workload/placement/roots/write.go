package roots

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/kit/refused"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

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
	r, err := w.set().Resource(root.Endpoint, i.Cluster, i.GroupVersionResource)
	if err != nil {
		return false, "", err
	}
	client := r.Namespace(i.Namespace)
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

// refusedInterval is the time until a leaf that kcp refuses is written again: a quota can be raised, or a policy
// changed.
const refusedInterval = time.Minute

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
// not longer. Zero is never.
func (r refusal) retry(again time.Duration) time.Duration {
	if r != "" {
		return sooner(again, refusedInterval)
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
		if live, err = mergepatch.Send(ctx, client, api.ManagerController, at.Name, live.GetUID(), surplus); err != nil {
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
	r, err := w.set().Resource(sub.root.Endpoint, sub.Cluster, sub.GroupVersionResource)
	if err != nil {
		return err
	}
	live, err := mergepatch.Send(ctx, r.Namespace(sub.Namespace), api.ManagerController, sub.Name, sub.root.GetUID(),
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

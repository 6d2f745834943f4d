package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// deletePoll is how often it is looked whether a deleted object is gone.
const deletePoll = 250 * time.Millisecond

// Objects returns everything that the setup has applied, in the order of its components. Namespaces are not among it.
func (r *Runtime) Objects(ctx context.Context) ([]plan.Item, error) {
	surveys, err := r.surveys(quiet(ctx))
	if err != nil {
		return nil, err
	}
	if _, err := r.recognise(ctx, surveys); err != nil {
		return nil, err
	}
	var out []plan.Item
	for _, sv := range surveys {
		for ref, o := range sv.members {
			out = append(out, plan.Item{Ref: ref, Component: topology.IDFromLabels(o.GetLabels()), Action: plan.Unchanged, Live: o})
		}
	}
	order := map[topology.ID]int{}
	for i, c := range r.topology.Components {
		order[c.ID()] = i - len(r.topology.Components) // what the setup does not know any more comes last
	}
	slices.SortFunc(out, func(a, b plan.Item) int {
		if d := order[a.Component] - order[b.Component]; d != 0 {
			return d
		}
		return strings.Compare(a.Cluster+" "+a.String(), b.Cluster+" "+b.String())
	})
	return out, nil
}

// Delete deletes objects and waits until they and their pods are gone. What holds data stays: only Purge deletes that.
func (r *Runtime) Delete(ctx context.Context, items []plan.Item) error {
	ctx = quiet(ctx)
	return concurrently(ctx, items, func(ctx context.Context, it plan.Item) error {
		k, err := kindOf(it.GroupVersionKind)
		if err != nil || k.lasting {
			return err
		}
		s, err := r.site(ctx, it.Ref)
		if err != nil {
			return err
		}
		return s.delete(ctx, k, it.Live)
	})
}

// delete deletes an object as it was seen, not another that has taken its name nor one that was changed since, and waits until
// it and its pods are gone.
func (s *site) delete(ctx context.Context, k kind, o *unstructured.Unstructured) error {
	if err := s.deleteSeen(ctx, s.client(k), o); err != nil {
		return s.explain(err, "delete %s", plan.RefOf(s.Name, o))
	}
	return s.untilGone(ctx, k, o)
}

// untilGone waits until an object that was deleted and its pods are gone.
func (s *site) untilGone(ctx context.Context, k kind, o *unstructured.Unstructured) error {
	client := s.client(k)
	what, uid := plan.RefOf(s.Name, o), o.GetUID()
	if err := s.until(ctx, func() (waits string, err error) {
		live, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && live.GetUID() != uid) {
			return "", nil
		}
		if err == nil && len(live.GetFinalizers()) > 0 {
			return fmt.Sprintf("%s to be gone; its finalizers are %s", what, strings.Join(live.GetFinalizers(), ", ")), nil
		}
		return what.String() + " to be gone", err
	}); err != nil || !k.hasPods() {
		return err
	}
	return s.untilNoPods(ctx, o)
}

// deleteSeen deletes an object if it is still the one that was seen, and says the same. Controllers write its status all the
// time: that is no change. One that is gone, or has been replaced, is left alone.
func (s *site) deleteSeen(ctx context.Context, client dynamic.ResourceInterface, seen *unstructured.Unstructured) error {
	uid, version, background := seen.GetUID(), seen.GetResourceVersion(), metav1.DeletePropagationBackground
	for {
		err := client.Delete(ctx, seen.GetName(), metav1.DeleteOptions{
			PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
		if !apierrors.IsConflict(err) {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		live, err := client.Get(ctx, seen.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case live.GetUID() != uid:
			return nil
		case !plan.Same(seen, live) && live.GetDeletionTimestamp() == nil:
			return clierr.New(clierr.Conflict, "run the command again: it looks at what there is now",
				"%s was changed since this run has looked at it, and was not deleted", plan.RefOf(s.Name, seen))
		}
		version = live.GetResourceVersion()
	}
}

// untilNoPods waits until the pods of a workload are gone.
func (s *site) untilNoPods(ctx context.Context, workload *unstructured.Unstructured) error {
	match, _, err := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	if err != nil || len(match) == 0 {
		return err
	}
	return s.until(ctx, func() (string, error) {
		l, err := s.resource(pods()).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(match).String()})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return fmt.Sprintf("Pod/%s/%s to be gone", s.Namespace, l.Items[0].GetName()), nil
	})
}

// until polls until done says that it waits for nothing more.
func (s *site) until(ctx context.Context, done func() (waits string, err error)) error {
	for {
		waits, err := done()
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s (%s): %w", waits, s.where(), context.Cause(ctx))
		}
		if err != nil {
			return s.explain(err, "wait for %s", waits)
		}
		if waits == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s (%s): %w", waits, s.where(), context.Cause(ctx))
		case <-time.After(deletePoll):
		}
	}
}

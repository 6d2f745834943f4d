package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
)

type applyOptions struct{ dryRun, force bool }

// apply sends an object to the API server. The error is the API server's.
func (s *site) apply(ctx context.Context, o *unstructured.Unstructured, opts applyOptions) (*unstructured.Unstructured, error) {
	client, err := s.of(o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	meta := metav1.ApplyOptions{FieldManager: fieldManager, Force: opts.force}
	if opts.dryRun {
		meta.DryRun = []string{metav1.DryRunAll}
	}
	return client.Apply(ctx, o.GetName(), o, meta)
}

// Apply writes objects kind by kind; those of one kind at once.
func (r *Runtime) Apply(ctx context.Context, items []plan.Item, o run.PlanOptions) error {
	ctx = quiet(ctx)
	for _, k := range kinds() {
		other := func(it plan.Item) bool { return it.GroupVersionKind != k.GroupVersionKind }
		same := slices.DeleteFunc(slices.Clone(items), other)
		err := concurrently(ctx, same, func(ctx context.Context, it plan.Item) error { return r.write(ctx, it, o) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Runtime) write(ctx context.Context, it plan.Item, o run.PlanOptions) error {
	s, err := r.site(ctx, it.Ref)
	if err != nil {
		return err
	}
	if it.Kind == "Namespace" && it.Action == plan.Create {
		if made, err := r.createNamespace(ctx, s); err != nil || !made {
			return err
		}
	}
	out, err := s.apply(ctx, it.Want, applyOptions{force: o.Force})
	if err != nil {
		return s.refused(it.Ref, err)
	}
	r.applied.add(it.Ref, out)
	return nil
}

// createNamespace makes the site's namespace and marks it as made by the setup. The mark has a field manager of its own, so
// that the next apply keeps it. made is false if the namespace is somebody else's.
func (r *Runtime) createNamespace(ctx context.Context, s *site) (made bool, err error) {
	k := known("Namespace")
	ns := &unstructured.Unstructured{}
	ns.SetGroupVersionKind(k.GroupVersionKind)
	ns.SetName(s.Namespace)
	ns.SetAnnotations(map[string]string{annotationCreatedBy: r.topology.Name})
	_, err = s.dynamic.Resource(k.gvr()).Create(ctx, ns, metav1.CreateOptions{FieldManager: fieldManager + "-namespace"})
	if apierrors.IsAlreadyExists(err) { // it may be ours: a request can be carried out although the answer is lost
		live, err := s.readNamespace(ctx)
		return err == nil && live != nil && r.made(live), err
	}
	return err == nil, s.explain(err, "create Namespace/%s", s.Namespace)
}

// refused explains why the API server did not take an object.
func (s *site) refused(ref plan.Ref, err error) error {
	switch {
	case conflicts(ref, err) != nil:
		return conflictError(conflicts(ref, err))
	case apierrors.IsInvalid(err):
		return s.invalid(ref, err)
	}
	return s.explain(err, "apply %s", ref)
}

// conflictError says which fields others own.
func conflictError(all []plan.Conflict) error {
	var lines []string
	for _, c := range all {
		lines = append(lines, fmt.Sprintf("%s: %s is owned by %q", c.Object, c.Field, c.Manager))
	}
	return clierr.New(clierr.Conflict,
		"let the other manager drop the field, leave it out of the setup, or take it over with --force-conflicts",
		"%s", strings.Join(lines, "\n"))
}

// applied remembers what this run wrote, so that what a watch has not seen yet is not mistaken for ready.
type applied struct {
	mu   sync.Mutex
	seen map[plan.Ref]generation
}

// generation is a state of an object's spec.
type generation struct {
	uid     types.UID
	created time.Time
	number  int64
}

func (a *applied) add(ref plan.Ref, o *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[plan.Ref]generation{}
	}
	a.seen[ref] = generation{uid: o.GetUID(), created: o.GetCreationTimestamp().Time, number: o.GetGeneration()}
}

// outdated tells whether an object is older than what this run wrote.
func (a *applied) outdated(ref plan.Ref, o *unstructured.Unstructured) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g, ok := a.seen[ref]
	switch {
	case !ok:
		return false
	case g.uid == o.GetUID():
		return o.GetGeneration() < g.number
	}
	return o.GetCreationTimestamp().Time.Before(g.created)
}

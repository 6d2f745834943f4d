package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// annotationCreatedBy is on a namespace that a setup has made, and names the setup.
const annotationCreatedBy = prefix + "created-by-setup"

// survey is what a cluster holds of a setup.
type survey struct {
	*site
	// namespace is nil if it does not exist, and empty if it may not be read.
	namespace *unstructured.Unstructured
	inventory *inventory
	// members are the objects that the setup applied.
	members map[plan.Ref]*unstructured.Unstructured
}

// Plan compares the rendered objects with the live ones, by a dry run of server-side apply.
func (r *Runtime) Plan(ctx context.Context, objects []render.Object, o run.PlanOptions) (*plan.Plan, error) {
	ctx = quiet(ctx)
	surveys, err := r.surveys(ctx)
	if err != nil {
		return nil, err
	}
	strange, err := r.recognise(ctx, surveys)
	if err != nil {
		return nil, err
	}
	p := &plan.Plan{Items: make([]plan.Item, len(objects))}
	found := make([][]plan.Conflict, len(objects))
	err = concurrently(ctx, indices(objects), func(ctx context.Context, i int) error {
		sv, err := surveyOf(surveys, objects[i])
		if err != nil {
			return err
		}
		p.Items[i], found[i], err = r.compare(ctx, sv, objects[i], o.Force)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.Conflicts = slices.Concat(found...)
	for _, sv := range surveys {
		p.Items = append(p.Items, sv.surplus(p.Items)...)
	}
	p.Stale = strange || r.stale(surveys, p)
	return p, nil
}

// surveys looks at all clusters at once; the home cluster comes first.
func (r *Runtime) surveys(ctx context.Context) ([]*survey, error) {
	if err := r.everywhere(ctx, func(context.Context, *site) error { return nil }); err != nil {
		return nil, err
	}
	if err := r.onePlace(ctx); err != nil {
		return nil, err
	}
	var out []*survey
	for _, s := range append([]*site{r.home}, r.all()...) {
		if len(out) == 0 || s != r.home {
			out = append(out, &survey{site: s})
		}
	}
	if err := concurrently(ctx, out, r.look); err != nil {
		return nil, err
	}
	return out, r.oneInstallation(out)
}

// look fills in a survey.
func (r *Runtime) look(ctx context.Context, sv *survey) error {
	steps := []func(context.Context) error{
		func(ctx context.Context) (err error) { sv.namespace, err = sv.readNamespace(ctx); return err },
		func(ctx context.Context) (err error) { sv.inventory, err = r.inventory(ctx, sv.site); return err },
		func(ctx context.Context) (err error) { sv.members, err = r.members(ctx, sv.site); return err },
	}
	return concurrently(ctx, steps, func(ctx context.Context, do func(context.Context) error) error { return do(ctx) })
}

// members are the objects on a site that the setup applied.
func (r *Runtime) members(ctx context.Context, s *site) (map[plan.Ref]*unstructured.Unstructured, error) {
	all := slices.DeleteFunc(kinds(), func(k kind) bool { return k.clusterScoped })
	lists := make([][]unstructured.Unstructured, len(all))
	err := concurrently(ctx, indices(all), func(ctx context.Context, i int) (err error) {
		lists[i], err = s.list(ctx, all[i], topology.LabelApplySet+"="+r.topology.ApplySet(s.Cluster))
		return err
	})
	out := map[plan.Ref]*unstructured.Unstructured{}
	for i, k := range all {
		for j := range lists[i] {
			out[s.ref(k.GroupVersionKind, lists[i][j].GetName())] = &lists[i][j]
		}
	}
	return out, err
}

// readNamespace returns the site's namespace: nil if it does not exist, an empty object if it may not be read.
func (s *site) readNamespace(ctx context.Context) (*unstructured.Unstructured, error) {
	ns, err := s.dynamic.Resource(known("Namespace").gvr()).Get(ctx, s.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return &unstructured.Unstructured{Object: map[string]any{}}, nil
	case err != nil:
		return nil, s.explain(err, "read Namespace/%s", s.Namespace)
	case ns.GetDeletionTimestamp() != nil:
		return nil, s.ending()
	}
	return ns, nil
}

// ending says that the site's namespace is being deleted.
func (s *site) ending() error {
	return clierr.New(clierr.Failed, "wait until it is gone: "+s.kubectl("wait --for=delete namespace/"+s.Namespace),
		"Namespace/%s (%s) is being deleted", s.Namespace, s.where())
}

func surveyOf(all []*survey, o render.Object) (*survey, error) {
	for _, sv := range all {
		if sv.Name == o.Cluster && (o.GetNamespace() == "" || o.GetNamespace() == sv.Namespace) {
			return sv, nil
		}
	}
	return nil, fmt.Errorf("%s is for cluster %q, which the setup does not have", plan.RefOf(o.Cluster, o.Unstructured), o.Cluster)
}

// compare finds out what an apply would make of an object, and whose fields it would change: with force only those that are
// nobody's to take, the objects of another setup.
func (r *Runtime) compare(ctx context.Context, sv *survey, o render.Object, force bool) (plan.Item, []plan.Conflict, error) {
	it := plan.Item{Ref: plan.RefOf(o.Cluster, o.Unstructured), Component: o.Component, Action: plan.Create, Want: o.Unstructured}
	if sv.namespace == nil {
		return it, nil, nil // a dry run cannot answer in a namespace that does not exist
	}
	if it.Kind == "Namespace" && !r.made(sv.namespace) {
		it.Action, it.Live, it.Merged = plan.Unchanged, sv.namespace, sv.namespace
		return it, nil, nil
	}
	var err error
	if it.Live = sv.members[it.Ref]; it.Live == nil {
		if it.Live, err = sv.get(ctx, it.GroupVersionKind, it.Name); err != nil {
			return it, nil, err
		}
	}
	found := r.stranger(it)
	it.Merged, err = sv.apply(ctx, o.Unstructured, applyOptions{dryRun: true})
	if c := conflicts(it.Ref, err); c != nil {
		if !force {
			found = append(found, c...)
		}
		it.Merged, err = sv.apply(ctx, o.Unstructured, applyOptions{dryRun: true, force: true})
	}
	if err != nil {
		return it, nil, sv.refused(it.Ref, err)
	}
	switch {
	case it.Live == nil:
	case plan.Same(it.Live, it.Merged):
		it.Action = plan.Unchanged
	default:
		it.Action = plan.Change
	}
	return it, found, nil
}

// made tells whether the setup has made a namespace. Others are the business of those who made them.
func (r *Runtime) made(ns *unstructured.Unstructured) bool {
	return ns.GetAnnotations()[annotationCreatedBy] == r.topology.Name
}

// stranger is a conflict where an object is that of another setup: the API server would not notice, for the field manager
// is the same.
func (r *Runtime) stranger(it plan.Item) []plan.Conflict {
	if it.Live == nil || it.Kind == "Namespace" {
		return nil
	}
	owner, set := it.Live.GetLabels()[topology.LabelSetup], it.Live.GetLabels()[topology.LabelApplySet]
	if set == "" || set == it.Want.GetLabels()[topology.LabelApplySet] {
		return nil
	}
	manager := "ApplySet " + set
	if owner != "" {
		manager = "kcpctl, setup " + owner
	}
	return []plan.Conflict{{
		Ref: it.Ref, Object: it.Ref.String(), Field: "metadata.labels[" + topology.LabelApplySet + "]", Manager: manager,
	}}
}

// surplus are deletions of what the setup applied and does not want any more.
func (sv *survey) surplus(items []plan.Item) []plan.Item {
	want := map[plan.Ref]bool{}
	for i := range items {
		want[items[i].Ref] = true
	}
	var out []plan.Item
	for ref, o := range sv.members {
		if k, err := kindOf(ref.GroupVersionKind); err == nil && !k.lasting && !want[ref] {
			out = append(out, plan.Item{Ref: ref, Component: topology.IDFromLabels(o.GetLabels()), Action: plan.Delete, Live: o})
		}
	}
	slices.SortFunc(out, func(a, b plan.Item) int {
		return strings.Compare(string(a.Component)+" "+a.String(), string(b.Component)+" "+b.String())
	})
	return out
}

// stale tells whether an inventory says anything else than it will say after the plan was applied.
func (r *Runtime) stale(surveys []*survey, p *plan.Plan) bool {
	for _, sv := range surveys {
		inv := sv.inventory
		if !inv.exists() || inv.applying != "" || !slices.Equal(inv.kinds, groupKinds(sv.site, wanted(p))) {
			return true
		}
		if sv.site == r.home && !slices.Equal(inv.clusters, r.placements(inv.clusters)) {
			return true
		}
	}
	return false
}

package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

// planner compares the rendered objects with the live ones, by a dry run of server-side apply.
type planner struct {
	*observer
	writer *inventoryWriter
}

// Plan compares the rendered objects with the live ones, by a dry run of server-side apply. Conflicts with other field
// managers are part of the plan, unless Force takes over their fields.
func (p *planner) Plan(ctx context.Context, objects []render.Object, o run.PlanOptions) (*plan.Plan, error) {
	states, err := p.observe(ctx)
	if err != nil {
		return nil, err
	}
	unknown, err := p.installation.verify(ctx, states[0].inventory)
	if err != nil {
		return nil, err
	}
	out := &plan.Plan{Items: make([]plan.Item, len(objects))}
	conflicts := make([][]plan.Conflict, len(objects))
	progress := counter(o.Progress, len(objects))
	out.Unreachable = p.clusters.allLeftOut()
	err = parallel.Each(ctx, parallel.Indices(objects), func(ctx context.Context, i int) error {
		if p.clusters.leftOut(objects[i].Cluster) != nil {
			out.Items[i] = item(objects[i], plan.Unknown)
			return nil
		}
		s, err := stateFor(states, objects[i])
		if err != nil {
			return err
		}
		out.Items[i], conflicts[i], err = p.compare(ctx, s, objects[i], o.Force)
		progress()
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Conflicts = slices.Concat(conflicts...)
	for _, s := range states {
		out.Items = append(out.Items, s.prunable(out.Items)...)
	}
	out.Stale = p.stale(states, out) || unknown
	return out, nil
}

// counter returns a function that reports how many of the objects it was called for.
func counter(report func(compared, total int), total int) func() {
	if report == nil {
		return func() {}
	}
	var mu sync.Mutex
	compared := 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		compared++
		report(compared, total)
	}
}

// compare finds out what an apply would change in an object, and which fields it would take from other managers. With
// force these are only the fields of another setup's objects, which force does not take over.
func (p *planner) compare(
	ctx context.Context, s *clusterState, o render.Object, force bool,
) (plan.Item, []plan.Conflict, error) {
	it := item(o, plan.Create)
	if s.namespace == nil {
		return it, nil, nil // a dry run fails in a namespace that does not exist
	}
	if it.Kind == kind.Namespace.Kind && !ownsNamespace(p.topology, s.namespace) {
		return unchanged(it, s.namespace), nil, nil
	}
	k, err := kind.Of(it.GroupVersionKind)
	if err != nil {
		return it, nil, err
	}
	if it.Live = s.members[it.Ref]; it.Live == nil {
		if it.Live, err = s.Get(ctx, k, it.Name); err != nil {
			return it, nil, err
		}
	}
	if err := it.CheckEnding(s.Where(), s.Kubectl); err != nil {
		return it, nil, err
	}
	if k.Shared && it.Live != nil && !older(it.Live, it.Want) {
		return unchanged(it, it.Live), nil, nil
	}
	if k.Definition != "" {
		if served, err := s.Serves(ctx, k); !served || err != nil {
			return it, nil, err // the definition comes with the plan
		}
	}
	it.Want = plan.KeepRestart(it.Want, it.Live)
	owner := foreignOwner(it)
	want := plan.KeepReplicas(it.Want, it.Live)
	fields, err := it.DryRun(func(force bool) (*unstructured.Unstructured, error) {
		return s.Apply(ctx, want, object.ApplyOptions{DryRun: true, Force: force})
	})
	switch {
	case isOptionalPatch(it, err):
		return withoutPatch(it), nil, nil
	case err != nil:
		return it, nil, s.Rejected(it.Ref, err)
	}
	return it, append(owner, it.Settle(fields, force)...), nil
}

func item(o render.Object, a plan.Action) plan.Item {
	return plan.Item{Ref: o.Ref(), Component: o.Component, Action: a, Want: o.Unstructured}
}

// unchanged returns an item that leaves a live object as it is.
func unchanged(it plan.Item, live *unstructured.Unstructured) plan.Item {
	it.Action = plan.Unchanged
	it.Live = live
	it.Merged = live
	return it
}

// isOptionalPatch reports whether an apply failed because the user may not patch the setup's namespace. Its labels are
// for users: neither the role admin nor the rules of the renewal job include this permission.
func isOptionalPatch(it plan.Item, err error) bool {
	return it.Kind == kind.Namespace.Kind && cluster.IsDenied(err)
}

// withoutPatch leaves the namespace as it is, with a note if it lacks labels.
func withoutPatch(it plan.Item) plan.Item {
	lacks := func(have, want map[string]string) bool {
		for key, value := range want {
			if have[key] != value {
				return true
			}
		}
		return false
	}
	if lacks(it.Live.GetLabels(), it.Want.GetLabels()) || lacks(it.Live.GetAnnotations(), it.Want.GetAnnotations()) {
		it.Note = "its labels and annotations stay as they are, because the user may not patch namespaces"
	}
	return unchanged(it, it.Live)
}

// older reports whether a shared object is from an earlier release. An object without a release was not made by kcpctl,
// and is not changed.
func older(live, want *unstructured.Unstructured) bool {
	return release.Older(live.GetAnnotations()[topology.AnnotationRelease],
		want.GetAnnotations()[topology.AnnotationRelease])
}

// foreignOwner is a conflict if an object belongs to another setup. The API server does not find it, because the field
// manager is the same.
func foreignOwner(it plan.Item) []plan.Conflict {
	if it.Live == nil || it.Kind == kind.Namespace.Kind {
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
		Ref: it.Ref, Object: it.Ref.String(),
		Field: "metadata.labels[" + topology.LabelApplySet + "]", Manager: manager,
	}}
}

// stale reports whether an inventory does not have the kinds of a plan, or is not finished. Deletions on a cluster of
// the setup have kinds too: a run that is limited to some components leaves them for the next one. It adds the reasons
// to the plan.
func (p *planner) stale(states []*clusterState, of *plan.Plan) (stale bool) {
	for _, s := range states {
		inv := s.inventory
		items, leaves := of.Items, !slices.Contains(p.clusters.current, s.Client)
		if leaves {
			items = wanted(of)
		}
		differs := !inv.Exists() || inv.Applying != "" ||
			!slices.Equal(inv.Kinds, inventory.GroupKinds(s.Client, items))
		stale = stale || differs
		if differs && leaves {
			of.Reasons = append(of.Reasons, fmt.Sprintf("cluster %s (%s) is no longer in the setup: "+
				"what it still has is removed", s.Name, s.Where()))
		}
		if inv.Applying != "" {
			of.Unfinished = append(of.Unfinished,
				fmt.Sprintf("a run on %s was not finished: %s", s.Where(), inv.Applying))
		}
		if s.Client != p.clusters.home {
			continue
		}
		stale = stale || len(p.clusters.allLeftOut()) == 0 && p.remembersLeft(inv)
		if next := p.writer.placements(inv.Clusters); !slices.EqualFunc(inv.Clusters, next, inventory.Placement.Equal) {
			stale = true
			of.Reasons = append(of.Reasons, forgotten(inv.Clusters, next)...)
		}
	}
	return stale
}

// forgotten returns what is said of the places that a setup had and no longer has.
func forgotten(before, next []inventory.Placement) []string {
	var out []string
	for _, b := range before {
		if !slices.ContainsFunc(next, b.SameName) {
			out = append(out, fmt.Sprintf("cluster %s is no longer in the setup, and nothing is left there", b.Name))
		}
	}
	return out
}

// remembersLeft reports whether the last run left clusters out. The next one without them is recorded even if it
// changes nothing there.
func (p *planner) remembersLeft(inv *inventory.Inventory) bool {
	n := len(inv.History)
	return n > 0 && len(inv.History[n-1].Without) > 0
}

// wanted are the items of a plan that will exist.
func wanted(p *plan.Plan) []plan.Item {
	return slices.DeleteFunc(slices.Clone(p.Items), func(it plan.Item) bool { return it.Action == plan.Delete })
}

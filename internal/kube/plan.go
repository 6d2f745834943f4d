package kube

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/kube/kind"
	"github.com/kcpctl/kcpctl/internal/parallel"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// planner compares the rendered objects with the live ones, by a dry run of server-side apply.
type planner struct {
	*observer
	writer *inventoryWriter
}

// plan makes the plan. Conflicts with other field managers are part of it, unless Force takes over their fields.
func (p *planner) plan(ctx context.Context, objects []render.Object, o run.PlanOptions) (*plan.Plan, error) {
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
	out.Stale = unknown || p.stale(states, out)
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
// force these are only the fields that force does not take over: those of another setup's objects.
func (p *planner) compare(
	ctx context.Context, s *clusterState, o render.Object, force bool,
) (plan.Item, []plan.Conflict, error) {
	it := item(o, plan.Create)
	if s.namespace == nil {
		return it, nil, nil // a dry run fails in a namespace that does not exist
	}
	if it.Kind == kind.Namespace.Kind && !ownsNamespace(p.topology, s.namespace) {
		it.Action, it.Live, it.Merged = plan.Unchanged, s.namespace, s.namespace
		return it, nil, nil
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
	if k.Shared && it.Live != nil && !older(it.Live, it.Want) {
		it.Action, it.Merged = plan.Unchanged, it.Live
		return it, nil, nil
	}
	if k.Definition != "" {
		if served, err := s.Serves(ctx, k); !served || err != nil {
			return it, nil, err // the definition comes with the plan
		}
	}
	conflicts := foreignOwner(it)
	it.Merged, err = s.Apply(ctx, o.Unstructured, cluster.ApplyOptions{DryRun: true})
	if c := plan.ConflictsOf(it.Ref, err); c != nil {
		if !force {
			conflicts = append(conflicts, c...)
		}
		it.Merged, err = s.Apply(ctx, o.Unstructured, cluster.ApplyOptions{DryRun: true, Force: true})
	}
	if err != nil {
		return it, nil, s.Rejected(it.Ref, err)
	}
	switch {
	case it.Live == nil:
	case plan.Same(it.Live, it.Merged):
		it.Action, it.Merged = plan.Unchanged, nil // it is the same as Live
	default:
		it.Action = plan.Change
	}
	return it, conflicts, nil
}

func item(o render.Object, a plan.Action) plan.Item {
	return plan.Item{Ref: o.Ref(), Component: o.Component, Action: a, Want: o.Unstructured}
}

// older reports whether a shared object is that of an earlier release. An object without a release was not made by kcpctl, and is
// left alone.
func older(live, want *unstructured.Unstructured) bool {
	have, err := version.ParseSemantic(live.GetAnnotations()[topology.AnnotationRelease])
	if err != nil {
		return false
	}
	next, err := version.ParseSemantic(want.GetAnnotations()[topology.AnnotationRelease])
	return err == nil && have.LessThan(next)
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
		Ref: it.Ref, Object: it.Ref.String(), Field: "metadata.labels[" + topology.LabelApplySet + "]", Manager: manager,
	}}
}

// stale reports whether an inventory differs from what it will be after the plan was applied.
func (p *planner) stale(states []*clusterState, of *plan.Plan) bool {
	for _, s := range states {
		inv := s.inventory
		kinds := inventory.GroupKinds(s.Client, wanted(of))
		if !inv.Exists() || inv.Applying != "" || !slices.Equal(inv.Kinds, kinds) {
			return true
		}
		if s.Client == p.clusters.home && len(p.clusters.allLeftOut()) == 0 && p.remembersLeft(inv) {
			return true
		}
		if s.Client == p.clusters.home && !slices.EqualFunc(inv.Clusters, p.writer.placements(inv.Clusters), inventory.Placement.Equal) {
			return true
		}
	}
	return false
}

// remembersLeft reports whether the last run left clusters out. The next one without them is recorded even if it changes
// nothing there.
func (p *planner) remembersLeft(inv *inventory.Inventory) bool {
	n := len(inv.History)
	return n > 0 && len(inv.History[n-1].Without) > 0
}

// wanted are the items of a plan that will exist.
func wanted(p *plan.Plan) []plan.Item {
	return slices.DeleteFunc(slices.Clone(p.Items), func(it plan.Item) bool { return it.Action == plan.Delete })
}

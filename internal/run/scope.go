package run

import (
	"slices"

	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// scope is the components that a run is limited to. An empty scope is not limited.
type scope []topology.ID

func (s scope) limited() bool { return len(s) > 0 }

func (s scope) includes(id topology.ID) bool { return !s.limited() || slices.Contains(s, id) }

// of returns the components that are in the scope.
func (s scope) of(ids []topology.ID) []topology.ID {
	return slices.DeleteFunc(slices.Clone(ids), func(id topology.ID) bool { return !s.includes(id) })
}

// limit leaves of a plan what it does to the components in the scope. Other objects stay as they are: they count as
// unchanged, and nothing is deleted.
func (s scope) limit(p *plan.Plan) *plan.Plan {
	if !s.limited() {
		return p
	}
	out := &plan.Plan{Stale: p.Stale}
	for _, it := range p.Items {
		included := s.includes(it.Component)
		switch {
		case it.Action == plan.Delete, it.Action == plan.Create && !included:
			continue
		case !included:
			it.Action = plan.Unchanged
		}
		out.Items = append(out.Items, it)
	}
	for _, c := range p.Conflicts {
		if slices.ContainsFunc(out.Items, func(it plan.Item) bool { return it.Ref == c.Ref && it.Action != plan.Unchanged }) {
			out.Conflicts = append(out.Conflicts, c)
		}
	}
	return out
}

// changes is what a run does to each component in its scope, in the order of the topology.
type changes struct {
	all []*change
	of  map[topology.ID]*change
}

// change is what a run does to a component.
type change struct {
	*topology.Component
	// items are the objects that are created or changed, without new namespaces, which are applied before everything
	// else.
	items []plan.Item
	// isNew means that the component does not run yet, rolls that a running component is changed.
	isNew, rolls bool
	// needs are the components in the scope that it needs.
	needs []topology.ID
	// after is the component whose roll comes before its own; empty for the first one and for those that do not roll.
	after topology.ID
	// turn is its place among the components that roll, one after another; -1 if it does not roll.
	turn int
}

// awaits reports whether a new component starts as soon as another one answers, without waiting until it is ready.
func (c *change) awaits(id topology.ID) bool { return slices.Contains(c.Awaits, id) }

// changesOf returns what a plan does to the components in a scope.
func changesOf(t *topology.Topology, s scope, p *plan.Plan) *changes {
	out := &changes{of: map[topology.ID]*change{}}
	for _, c := range t.Components {
		if !s.includes(c.ID()) {
			continue
		}
		ch := &change{Component: c, items: p.Of(c.ID()), needs: s.of(c.Needs), turn: -1}
		ch.isNew = slices.ContainsFunc(ch.items, func(it plan.Item) bool {
			return it.Action == plan.Create && (it.Kind == "Deployment" || it.Kind == "StatefulSet")
		})
		ch.rolls = len(ch.items) > 0 && !ch.isNew
		ch.items = slices.DeleteFunc(ch.items, isNewNamespace)
		out.all, out.of[c.ID()] = append(out.all, ch), ch
	}
	var previous topology.ID
	for i, ch := range out.serial() {
		ch.turn, ch.after = i, previous
		previous = ch.ID()
	}
	return out
}

// serial returns the components that roll, in the order in which they do: servers of virtual workspaces before the
// front-proxies, whose roll clients notice most.
func (cs *changes) serial() []*change {
	var out, proxies []*change
	for _, ch := range cs.all {
		switch {
		case !ch.rolls:
		case ch.Kind == topology.FrontProxy:
			proxies = append(proxies, ch)
		case ch.Kind == topology.Kubeconfig:
			out, proxies = append(append(out, proxies...), ch), nil
		default:
			out = append(out, ch)
		}
	}
	return append(out, proxies...)
}

func isNewNamespace(it plan.Item) bool { return it.Kind == "Namespace" && it.Action == plan.Create }

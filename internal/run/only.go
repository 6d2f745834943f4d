package run

import (
	"slices"

	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// chosen are the components that the run is about.
func (u *Up) chosen() []*topology.Component {
	if len(u.Options.Only) == 0 {
		return u.Topology.Components
	}
	return slices.DeleteFunc(slices.Clone(u.Topology.Components), func(c *topology.Component) bool {
		return !slices.Contains(u.Options.Only, c.ID())
	})
}

// chosenOf leaves of components those that the run is about.
func (u *Up) chosenOf(ids []topology.ID) []topology.ID {
	if len(u.Options.Only) == 0 {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id topology.ID) bool { return !slices.Contains(u.Options.Only, id) })
}

// about reports whether the run is about a component.
func (u *Up) about(id topology.ID) bool {
	return len(u.Options.Only) == 0 || slices.Contains(u.Options.Only, id)
}

// applied is what the run has applied when it is finished: the setup, or some of its components where more waits.
func (u *Up) applied(res *Result) plan.Applied {
	a := plan.Applied{Setup: u.Setup}
	if res.waits {
		a.Only = names(u.Options.Only)
	}
	return a
}

// restrict leaves of a plan what it does to some components. What it would do to others stays as it is: those objects count
// as unchanged, and nothing is deleted.
func restrict(p *plan.Plan, only []topology.ID) *plan.Plan {
	if len(only) == 0 {
		return p
	}
	out := &plan.Plan{Stale: p.Stale}
	for _, it := range p.Items {
		chosen := slices.Contains(only, it.Component)
		switch {
		case it.Action == plan.Delete, it.Action == plan.Create && !chosen:
			continue
		case !chosen:
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

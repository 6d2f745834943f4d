package plan

import (
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Scope is the components that a run is limited to. An empty scope is not limited.
type Scope []topology.ID

// Limited reports whether the run is limited.
func (s Scope) Limited() bool { return len(s) > 0 }

// Includes reports whether the run is about a component.
func (s Scope) Includes(id topology.ID) bool { return !s.Limited() || slices.Contains(s, id) }

// Of returns the components that are in the scope.
func (s Scope) Of(ids []topology.ID) []topology.ID {
	return slices.DeleteFunc(slices.Clone(ids), func(id topology.ID) bool { return !s.Includes(id) })
}

// Limit reduces a plan to the components in the scope. Other objects count as unchanged, and only the objects of
// removed components are deleted. The others that the setup no longer has remain in the plan: the runtime remembers
// their kinds, by which the next run finds them.
func (s Scope) Limit(p *Plan, removed ...topology.ID) *Plan {
	if !s.Limited() {
		return p
	}
	out := &Plan{
		Stale: p.Stale, Reasons: p.Reasons, Unfinished: p.Unfinished, Unreachable: p.Unreachable, NoAnswer: p.NoAnswer,
	}
	for _, it := range p.Items {
		included := s.Includes(it.Component)
		switch {
		case it.Action == Create && !included:
			continue
		case it.Action == Delete && !slices.Contains(removed, it.Component),
			!included && it.Action != Unknown:
			it.Action = Unchanged
		}
		out.Items = append(out.Items, it)
	}
	for _, c := range p.Conflicts {
		if slices.ContainsFunc(out.Items, func(it Item) bool { return it.Ref == c.Ref && it.Action != Unchanged }) {
			out.Conflicts = append(out.Conflicts, c)
		}
	}
	return out
}

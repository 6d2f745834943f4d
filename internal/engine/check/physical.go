package check

import (
	"context"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// registrable checks whether the clusters of spec.workloads have everything that up needs.
func registrable(ctx context.Context, s *Subject) (o outcome) {
	all := s.facts.Physical
	if len(all) == 0 {
		return skipped("the setup has no physical clusters")
	}
	type answer struct {
		identity string
		outcome
	}
	names := map[string]string{}
	for i, a := range parallel.Map(atOnce, all, func(p Physical) (a answer) {
		a.identity, a.outcome = s.register(ctx, p)
		return a
	}) {
		id := topology.IDOf(topology.Physical, all[i].Name)
		o.absorb(string(id), a.outcome)
		if other := names[a.identity]; other != "" && a.identity != "" {
			o.fail("%s: cluster/%s is the same cluster: their namespaces kube-system have the same UID", id, other)
			continue
		}
		names[a.identity] = all[i].Name
	}
	return o
}

// register asks a cluster. A cluster that does not answer has no identity. Of those that a run leaves alone only the
// identity counts.
func (s *Subject) register(ctx context.Context, p Physical) (identity string, o outcome) {
	identity, o, ok := p.answers(ctx)
	switch {
	case len(s.Only) > 0 && !slices.Contains(s.Only, topology.IDOf(topology.Physical, p.Name)):
		return identity, outcome{}
	case ok:
		objects := slices.DeleteFunc(s.at(topology.OnPhysical(p.Name)),
			func(o render.Object) bool { return !clusterScoped(o) })
		o.add(p.MayApplyClusterScoped(ctx, objects))
	}
	return identity, o
}

package run

import (
	"context"
	"time"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Compare returns what Up would change, as if it took over every field, and the fields that it would take over: those that
// others have changed. It writes nothing.
func Compare(ctx context.Context, t *topology.Topology, rt Runtime, now time.Time) (*plan.Plan, []plan.Conflict, error) {
	state, err := rt.Store().Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	res, err := pki.Ensure(t, state, pki.Options{Now: now})
	if err != nil {
		return nil, nil, err
	}
	objects, err := render.Objects(t, res.State)
	if err != nil {
		return nil, nil, err
	}
	p, err := rt.Plan(ctx, objects, PlanOptions{})
	if err != nil || len(p.Conflicts) == 0 {
		return p, nil, err
	}
	drift := p.Conflicts
	p, err = rt.Plan(ctx, objects, PlanOptions{Force: true})
	return p, drift, err
}

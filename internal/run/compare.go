package run

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
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

// Unapplied returns what the given setup would change, of some components or of all, because it is not the one that was applied
// last. An edit that changes no object waits for nothing, and nothing waits where nothing was ever applied.
func Unapplied(ctx context.Context, t *topology.Topology, rt Runtime, setup []byte, only []topology.ID, now time.Time) (*plan.Plan, error) {
	history, err := rt.History(ctx)
	if err != nil || len(history) == 0 {
		return &plan.Plan{}, err
	}
	if latest, complete := plan.Latest(history); complete && bytes.Equal(latest, setup) {
		return &plan.Plan{}, nil
	}
	p, _, err := Compare(ctx, t, rt, now)
	if err != nil {
		return nil, err
	}
	return restrict(p, only), nil
}

// ErrUnapplied is why a run that is not for edits of the setup file refuses to bring them along.
var ErrUnapplied = errors.New("the setup file has changes that are not applied yet, and this would apply them too")

// unedited refuses to bring along edits of the setup file that were not applied, where the run is not for them.
func (u *Up) unedited(ctx context.Context) error {
	if u.Options.Unedited == nil {
		return nil
	}
	waits, err := Unapplied(ctx, u.Topology, u.Runtime, u.Options.Unedited, u.Options.Only, u.Now())
	if err != nil {
		return err
	}
	if waits.Empty() {
		return nil
	}
	return clierr.New(clierr.Failed, "run kcpctl up first, or revert them; kcpctl diff shows them", "%w: %s", ErrUnapplied, waits.Summary())
}

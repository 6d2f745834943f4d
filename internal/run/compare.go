package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// CompareRuntime is what Compare needs of a runtime.
type CompareRuntime interface {
	Planner
	Store() pki.Store
}

// Compare returns what Up would change, as if it took over every field, and the fields that it would take over: the
// ones that other managers have changed. It writes nothing.
func Compare(ctx context.Context, t *topology.Topology, rt CompareRuntime, now time.Time) (*plan.Plan, []plan.Conflict, error) {
	return compare(ctx, t, rt, now, nil)
}

func compare(
	ctx context.Context, t *topology.Topology, rt CompareRuntime, now time.Time, progress func(compared, total int),
) (*plan.Plan, []plan.Conflict, error) {
	desired, err := LoadDesired(ctx, t, rt.Store(), DesiredOptions{Now: now})
	if err != nil {
		return nil, nil, err
	}
	objects, err := desired.Objects()
	if err != nil {
		return nil, nil, err
	}
	options := PlanOptions{Progress: progress, PKI: desired.Loaded}
	p, err := rt.Plan(ctx, objects, options)
	if err != nil || len(p.Conflicts) == 0 {
		return p, nil, err
	}
	drift := p.Conflicts
	options.Force = true
	p, err = rt.Plan(ctx, objects, options)
	return p, drift, err
}

// UnappliedRuntime is what Unapplied needs of a runtime.
type UnappliedRuntime interface {
	CompareRuntime
	History(ctx context.Context) ([]plan.Revision, error)
}

// Unapplied returns what the given setup would change, in some components or in all, because it is not the one that
// was applied last. An edit that changes no object is not pending, and nothing is pending before the first run.
func Unapplied(
	ctx context.Context, t *topology.Topology, rt UnappliedRuntime, setup []byte, only []topology.ID, now time.Time,
) (*plan.Plan, error) {
	return unapplied(ctx, t, rt, setup, only, now, nil)
}

func unapplied(
	ctx context.Context, t *topology.Topology, rt UnappliedRuntime, setup []byte, only []topology.ID, now time.Time,
	progress func(compared, total int),
) (*plan.Plan, error) {
	history, err := rt.History(ctx)
	if err != nil || len(history) == 0 {
		return &plan.Plan{}, err
	}
	if latest, complete := plan.Latest(history); complete && bytes.Equal(latest, setup) {
		return &plan.Plan{}, nil
	}
	p, _, err := compare(ctx, t, rt, now, progress)
	if err != nil {
		return nil, err
	}
	return scope(only).limit(p), nil
}

// ErrUnapplied is the error of a run that would also apply pending edits of the setup file, which is not its purpose.
var ErrUnapplied = errors.New("the setup file has changes that are not applied yet, and this would apply them too")

// unedited refuses a run that would also apply pending edits of the setup file, if that is not its purpose.
func (p *preparation) unedited(ctx context.Context) error {
	if p.Options.Unedited == nil {
		return nil
	}
	c := p.comparison(stepEdits)
	pending, err := unapplied(ctx, p.Topology, p.Runtime, p.Options.Unedited, p.scope(), p.Now(), c.progress)
	if err != nil {
		return err
	}
	c.done(pending.Summary())
	relabelled := p.relabelled()
	if pending.Empty() && len(relabelled) == 0 {
		return nil
	}
	changes := pending.Summary()
	for _, c := range relabelled {
		changes += fmt.Sprintf("; other labels of %s", c.ID())
	}
	return clierr.New(clierr.Failed, "run kcpctl up first, or revert them; kcpctl diff shows them", "%w: %s", ErrUnapplied, changes)
}

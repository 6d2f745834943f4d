package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// CompareRuntime is what Compare needs of a runtime.
type CompareRuntime interface {
	run.Planner
	// Record fails if what is in the clusters belongs to another installation, or to one whose record is lost.
	Record(ctx context.Context) (*record.Record, error)
	Store() pki.Store
}

// Compare returns what Up would change, as if it took over every field, and the fields that it would take over: the
// ones that other managers have changed. It writes nothing.
func Compare(ctx context.Context, t *topology.Topology, rt CompareRuntime,
	now time.Time) (*plan.Plan, []plan.Conflict, error) {
	c, err := compare(ctx, t, rt, now, nil)
	if err != nil {
		return nil, nil, err
	}
	return c.Plan, c.Drift, nil
}

// Comparison has the changes of a run of Up, before it.
type Comparison struct {
	Plan *plan.Plan
	// Drift are the fields that other managers have changed.
	Drift []plan.Conflict
	// Refused is why Up would refuse the plan. Nil: it would not.
	Refused error

	known   *record.Record
	desired *Desired
	objects []render.Object
}

func compare(
	ctx context.Context, t *topology.Topology, rt CompareRuntime, now time.Time, progress func(compared, total int),
) (c *Comparison, err error) {
	c = &Comparison{}
	if c.known, err = rt.Record(ctx); err != nil {
		return nil, err
	}
	if c.desired, err = LoadDesired(ctx, t, rt.Store(), DesiredOptions{Now: now}); err != nil {
		return nil, err
	}
	if c.objects, err = c.desired.Objects(); err != nil {
		return nil, err
	}
	options := run.PlanOptions{Progress: progress, PKI: c.desired.Loaded}
	c.Plan, err = rt.Plan(ctx, c.objects, options)
	if err != nil || len(c.Plan.Conflicts) == 0 {
		return c, err
	}
	c.Drift = c.Plan.Conflicts
	options.Force = true
	c.Plan, err = rt.Plan(ctx, c.objects, options)
	return c, err
}

// Compare is the function Compare, and also returns why Run would refuse the plan. left are the clusters that are left
// out.
func (u *Up) Compare(ctx context.Context, left []plan.Unreachable) (*Comparison, error) {
	u.reporter, u.left = run.NewReporter(u.Observe, u.Now), left
	c, err := compare(ctx, u.Topology, u.Runtime, u.Now(), nil)
	if err != nil {
		return nil, err
	}
	p := &preparation{Up: u, again: true, known: c.known, desired: c.desired, objects: c.objects}
	if p.data, err = p.readData(ctx); err != nil {
		return nil, err
	}
	c.Refused = p.refusals(ctx, c.Plan)
	return c, nil
}

// refusals returns everything for which a run would refuse a plan, because it would lose data or trust. A run ends with
// the first of these.
func (p *preparation) refusals(ctx context.Context, pl *plan.Plan) error {
	same := *pl // guard changes it
	loaded := p.desired.Loaded
	res := &Result{Plan: &same, PKI: p.desired.PKI, desired: p.desired, known: p.known}
	return parallel.Join([]error{
		p.known.Writable(), p.acceptRecord(), p.mayInstall(loaded), p.sameAuthorities(p.known, loaded),
		p.sameRecordedData(), p.mayWithdraw(ctx, res), p.mayUnbind(ctx, res), (&guard{p, res, p.known}).check(ctx),
	})
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
	progress func(compared, total int),
) (*plan.Plan, error) {
	history, err := rt.History(ctx)
	if err != nil || len(history) == 0 {
		return &plan.Plan{}, err
	}
	if latest, complete := plan.Latest(history); complete && plan.SameSetup(latest, setup) {
		return &plan.Plan{}, nil
	}
	c, err := compare(ctx, t, rt, now, progress)
	if err != nil {
		return nil, err
	}
	return plan.Scope(only).Limit(c.Plan), nil
}

// ErrUnapplied is the error of a run that would also apply pending edits of the setup file, which is not its purpose.
var ErrUnapplied = errors.New("the setup file has changes that are not applied yet, and this would apply them too")

// ErrUnfinished is the error of a run that must not complete what the last run of up has left.
var ErrUnfinished = errors.New("the last kcpctl up did not finish, and this would complete it too")

// unedited refuses a run that would also apply pending edits of the setup file, if that is not its purpose.
func (p *preparation) unedited(ctx context.Context) error {
	if p.Options.Unedited == nil {
		return nil
	}
	c := p.comparison(stepEdits)
	pending, err := Unapplied(ctx, p.Topology, p.Runtime, p.Options.Unedited, p.scope(), p.Now(), c.progress)
	if err != nil {
		return err
	}
	c.done(pending.Summary())
	changes := slices.Clone(pending.Reasons)
	if pending.Changes() > 0 {
		changes = slices.Insert(changes, 0, pending.Summary())
	}
	for _, c := range p.relabelled() {
		changes = append(changes, fmt.Sprintf("other labels of %s", c.ID()))
	}
	if len(changes) > 0 || pending.Stale {
		if err := p.otherRun(ctx); err != nil {
			return err
		}
	}
	switch {
	case len(changes) > 0 && pending.Stale:
		return clierr.New(clierr.Failed, "run kcpctl up: it completes what is left, and applies them", "%w: %s; %w",
			ErrUnapplied, strings.Join(changes, "; "), unfinishedRuns(pending.Unfinished))
	case len(changes) > 0:
		return clierr.New(clierr.Failed, "run kcpctl up first, or revert them; kcpctl diff shows them", "%w: %s",
			ErrUnapplied, strings.Join(changes, "; "))
	case pending.NoAnswer != nil:
		return clierr.New(clierr.Failed, clierr.Hint(pending.NoAnswer),
			"whether the setup file has changes that are not applied yet is not known: %w", pending.NoAnswer)
	case pending.Stale:
		return clierr.New(clierr.Failed, "run kcpctl up: it completes what is left", "%w",
			unfinishedRuns(pending.Unfinished))
	}
	return nil
}

// otherRun refuses to judge what another run has not applied yet: it is still at it.
func (p *preparation) otherRun(ctx context.Context) error {
	if p.again { // this run holds the lock
		return nil
	}
	current, _, err := p.Runtime.Runs(ctx)
	if err != nil || current == nil {
		return err
	}
	return clierr.New(clierr.Conflict, "wait until it has ended, then rerun the command",
		"another run is changing the setup: %s (pid %d)", cmp.Or(current.Command, "kcpctl"), current.PID)
}

// unfinishedRuns is ErrUnfinished with the runs, as far as they are known.
func unfinishedRuns(runs []string) error {
	if len(runs) == 0 {
		return ErrUnfinished
	}
	return fmt.Errorf("%w: %s", ErrUnfinished, strings.Join(runs, "; "))
}

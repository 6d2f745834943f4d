package deploy

import (
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
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// preparation is the part of a run that writes nothing: it makes the plan, and refuses one that would lose something.
type preparation struct {
	*Up
	// again means that the same run has made a plan a moment ago, without the lock. Only failures are reported then,
	// and the preflight checks, which have passed, are not run again.
	again bool
	// quiet means that only failures are reported, and that addresses may be missing: the plan is for a run that
	// requests them.
	quiet bool

	// known is the record of the installation, and desired and objects are the state to apply.
	known   *record.Record
	desired *Desired
	objects []render.Object
	// data is where components keep data according to the rendered objects, with details from the storage.
	data map[topology.ID]record.Data
}

func (u *Up) prepare(ctx context.Context) (*Result, error) { return (&preparation{Up: u}).run(ctx) }

func (u *Up) prepareAgain(ctx context.Context) (*Result, error) {
	return (&preparation{Up: u, again: true}).run(ctx)
}

// step reports a step.
func (p *preparation) step(name string, s run.Status, message string) {
	if !p.again && !p.quiet {
		p.Up.Step(name, s, message)
	}
}

func (p *preparation) run(ctx context.Context) (*Result, error) {
	refused, err := p.reach(ctx)
	if err != nil {
		return nil, err
	}
	if p.known, err = p.Runtime.Record(ctx); err != nil {
		return nil, err
	}
	if err := p.known.Writable(); err != nil && !p.Options.DryRun {
		return nil, err
	}
	if err := p.acceptRecord(); err != nil {
		return nil, p.Fail(stepCertificates, err)
	}
	if err := p.unedited(ctx); err != nil {
		return nil, err
	}
	if err := p.certificates(ctx); err != nil {
		return nil, p.Fail(stepCertificates, err)
	}
	if p.objects, err = p.desired.Objects(); err != nil {
		return nil, p.Fail(stepPlan, err)
	}
	p.restart()
	if p.data, err = p.readData(ctx); err != nil {
		return nil, p.Fail(stepPlan, err)
	}
	if err := p.sameRecordedData(); err != nil {
		return nil, p.Fail(stepPlan, err)
	}
	p.step(stepPreflight, run.Running, "")
	if err := p.preflight(ctx, p.objects, check.Quick()); err != nil {
		return nil, err
	}
	p.step(stepPreflight, run.Done, "passed")
	p.step(stepPlan, run.Running, "")
	c := p.comparison(stepPlan)
	res, err := p.plan(ctx, c.progress)
	if err != nil {
		return res, err
	}
	res.Refused = refused
	if err := p.mayRestart(res.Plan); err != nil {
		return res, p.Fail(stepPlan, err)
	}
	if err := p.mayWithdraw(ctx, res); err != nil {
		return res, p.Fail(stepPlan, err)
	}
	if err := p.mayUnbind(ctx, res); err != nil {
		return res, p.Fail(stepPlan, err)
	}
	if err := (&guard{p, res, p.known}).check(ctx); err != nil {
		return res, p.Fail(stepPlan, err)
	}
	p.recordUnwatched(ctx, res)
	if err := p.noteOthers(ctx, res.Plan); err != nil {
		return res, err
	}
	p.step(stepPlan, run.Done, res.Plan.Summary())
	if p.again {
		c.done(res.Plan.Summary())
	}
	if changed := p.changed(res.Plan); len(changed) > 0 {
		return res, p.preflight(ctx, changed, check.Thorough())
	}
	return res, nil
}

// certificates brings the PKI up to date in memory.
func (p *preparation) certificates(ctx context.Context) (err error) {
	p.step(stepCertificates, run.Running, "")
	p.desired, err = LoadDesired(ctx, p.Topology, p.Runtime.Store(), DesiredOptions{
		Now: p.Now(), Renew: p.Options.Renew, change: p.change, pending: p.quiet,
		Replace: p.Options.ReplaceAuthorities, identity: p.identity(), lost: p.known.LostKeys,
		recover: func(loaded *pki.State) (*pki.State, error) { return p.recoverKeys(ctx, loaded) },
		accept: func(loaded *pki.State) error {
			return errors.Join(p.mayInstall(loaded), p.sameAuthorities(p.known, loaded), p.sameForAll(loaded))
		},
	})
	if err != nil {
		return err
	}
	p.step(stepCertificates, run.Done, certificatesMessage(p.desired.PKI))
	if lost, next := p.known.LostKeysMessage(p.desired.PKI.State, p.Runtime.Store().String()); lost != "" &&
		!p.again && !p.quiet {
		p.Note(lost + "; " + next)
	}
	p.notePreviousKMS()
	return nil
}

// certificatesMessage is one line: 4 authorities to create, 3 certificates to create, 6 kept, next expiry 2027-11-20.
// Nothing is saved yet: a dry run never saves, and a run may fail before it does.
func certificatesMessage(r *pki.Result) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{len(r.CAs), gather.Count(len(r.CAs), "authority", "authorities") + " to create"},
		{r.Created(), gather.Count(r.Created(), "certificate", "certificates") + " to create"},
		{r.Renewed(), gather.Count(r.Renewed(), "certificate", "certificates") + " to renew"},
		{r.Kept, fmt.Sprintf("%d kept", r.Kept)},
	} {
		if p.n > 0 {
			parts = append(parts, p.what)
		}
	}
	return strings.Join(append(parts, "next expiry "+r.NextExpiry.UTC().Format(time.DateOnly)), ", ")
}

// preflight checks that objects can be applied.
func (p *preparation) preflight(ctx context.Context, objects []render.Object, checks []check.Check) error {
	if p.again {
		return nil
	}
	report := check.Run(ctx, &check.Subject{
		Topology: p.Topology, Runtime: p.Runtime, Objects: objects, Now: p.Now, Network: p.Network,
		Only:             p.Options.Only,
		AllowUnreachable: true, // reach has refused those that matter
	}, checks)
	report.Ignore(p.Options.IgnoreChecks...)
	p.Note(report.Warnings()...)
	if err := report.Err(); err != nil {
		return p.Fail(stepPreflight, err)
	}
	return nil
}

// plan compares the objects with the live ones. With a conflict it returns an error and a result with the plan.
func (p *preparation) plan(ctx context.Context, progress func(compared, total int)) (*Result, error) {
	options := p.Options.PlanOptions
	options.Progress = progress
	options.PKI = p.desired.Loaded
	whole, err := p.Runtime.Plan(ctx, p.objects, options)
	if err != nil {
		err = p.Fail(stepPlan, err)
		// A check may explain better why an object was rejected.
		if cause := p.preflight(ctx, p.objects, check.Thorough()); cause != nil &&
			!strings.Contains(cause.Error(), err.Error()) {
			err = errors.Join(err, cause)
		}
		return nil, err
	}
	res := &Result{Plan: p.scope().Limit(whole, p.Options.Removed...), PKI: p.desired.PKI,
		desired: p.desired, known: p.known}
	if err := p.prunes(whole); err != nil && !p.again {
		return res, err
	}
	if !p.again && !p.quiet {
		p.Note(append(Kept(whole), whole.Notes()...)...)
	}
	res.partial = whole.Summary() != res.Plan.Summary() || len(whole.Items) != len(res.Plan.Items) ||
		whole.Count(plan.Unknown) > 0
	if n := len(res.Plan.Conflicts); n > 0 {
		for i := range res.Plan.Conflicts {
			res.Plan.Conflicts[i].Leave = p.leave(res.Plan, res.Plan.Conflicts[i])
		}
		err := clierr.New(clierr.Conflict, "", "%s owned by other field managers; nothing was written",
			gather.Count(n, "field is", "fields are"))
		return res, p.Fail(stepPlan, &ConflictError{err, res.Plan.Conflicts})
	}
	return res, nil
}

// leave returns how the setup file leaves a field in conflict to its other manager, or "".
func (p *preparation) leave(of *plan.Plan, conflict plan.Conflict) string {
	i := slices.IndexFunc(of.Items, func(it plan.Item) bool { return it.Ref == conflict.Ref })
	if i < 0 || conflict.Workspace != "" {
		return ""
	}
	c := p.Topology.Component(of.Items[i].Component)
	if c == nil {
		return ""
	}
	return render.Leave(c, conflict.Kind, conflict.Field)
}

// longComparison is how long a comparison takes before its progress is reported.
const longComparison = 2 * time.Second

// comparison reports, as a step of the run, the progress of a comparison of objects. It does not report a short one.
type comparison struct {
	run   *Up
	name  string
	begun time.Time
	// tenths is how many tenths were reported.
	tenths int
}

func (p *preparation) comparison(step string) *comparison {
	return &comparison{run: p.Up, name: step, begun: p.Now()}
}

func (c *comparison) progress(compared, total int) {
	tenths := 10 * compared / total
	if tenths <= c.tenths || tenths == 10 || c.run.Now().Sub(c.begun) < longComparison {
		return
	}
	c.tenths = tenths
	c.run.Step(c.name, run.Running, fmt.Sprintf("compared %d of %d objects", compared, total))
}

// done ends the step if its progress was reported.
func (c *comparison) done(result string) {
	if c.tenths > 0 {
		c.run.Step(c.name, run.Done, result)
	}
}

// ConflictError is the error of a run that would change fields of other field managers.
type ConflictError struct {
	error
	Conflicts []plan.Conflict
}

func (e *ConflictError) Unwrap() error { return e.error }

// changed returns the objects that a plan creates or changes.
func (p *preparation) changed(pl *plan.Plan) []render.Object {
	does := map[plan.Ref]plan.Action{}
	for _, it := range pl.Items {
		does[it.Ref] = it.Action
	}
	var out []render.Object
	for _, o := range p.objects {
		if a := does[o.Ref()]; a == plan.Create || a == plan.Change {
			out = append(out, o)
		}
	}
	return out
}

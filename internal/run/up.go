// Package run turns a setup into a working kcp: it plans, applies in the order of the components, waits with reasons, and
// proves that the result serves. It is the same for every runtime.
package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// The steps of a run, by the names in their events.
const (
	stepPreflight    = "preflight"
	stepCertificates = "certificates"
	stepPlan         = "plan"
	stepCanary       = "canary"
)

// Up brings a setup up, or changes a running one. It can be interrupted at any moment and run again.
type Up struct {
	Topology *topology.Topology
	Runtime  Runtime
	// Setup is the setup file as it is remembered once it is applied. Nil leaves what is remembered as it is.
	Setup   []byte
	Observe Observer
	Now     func() time.Time
	Options UpOptions

	// Preflight looks for what would keep objects from being applied, and returns what is worth saying besides. It is asked
	// twice: for all objects, and thoroughly for those that the plan creates or changes. Nil is the runtime's own, once.
	Preflight func(ctx context.Context, objects []render.Object, thorough bool) (notes []string, err error)

	mu     sync.Mutex  // components report at once, the observer is told one at a time
	failed atomic.Bool // the root shard did not become ready
	quiet  bool        // the plan is made again: only what is wrong with it is told
}

// UpOptions say how to bring a setup up.
type UpOptions struct {
	PlanOptions
	// DryRun ends after the plan.
	DryRun bool
	// SkipCanary leaves out the workspaces that prove that each shard serves.
	SkipCanary bool
	// Canaries are the shards that get one. Empty means all.
	Canaries []topology.ID
	// Only limits the run to some components: the others are left as they are, whatever the setup says of them.
	Only []topology.ID
	// Timeout limits the wait for readiness.
	Timeout time.Duration
	// Change changes the PKI that was loaded before what it lacks is issued: a step of a rotation, authorities that are
	// brought. It is called again if another run wrote meanwhile. Nil changes nothing.
	Change func(*pki.State) (*pki.State, error)
	// Renew tells which certificates to issue anew. Nil is those that are due.
	Renew func(pki.Cert) bool
	// Unedited is the setup file of a run that must not bring along edits which were not applied: it refuses while some wait.
	Unedited []byte
	// Edit writes the setup file, where the run is for an edit of it. It is called under the lock, once nothing refuses the
	// run, before everything else is written.
	Edit func() error
	// AllowDataChange are the components that may leave the data that they have.
	AllowDataChange []topology.ID
	// AllowReleaseChange accepts a kcp release that skips one, or that is older than what runs.
	AllowReleaseChange bool
	// ReplaceAuthorities accepts a PKI that is not the installation's.
	ReplaceAuthorities bool
}

// Result is what a run did, or would do.
type Result struct {
	Plan *plan.Plan
	PKI  *pki.Result
	// record is what the installation knows of itself once the plan is applied.
	record *record.Record
	// waits says that the setup has changes which a run that is limited to components leaves out.
	waits bool
}

// Run plans, applies, waits and checks. With a conflict it writes nothing and the Result has the plan. The first plan decides
// whether there is anything to do; the one that is applied is made under the lock.
func (u *Up) Run(ctx context.Context) (*Result, error) {
	res, err := u.prepare(ctx)
	if err != nil || u.Options.DryRun {
		return res, err
	}
	if res.Plan.Empty() && u.Options.Edit == nil {
		return res, u.components(ctx, res)
	}
	if err := u.applyNamespaces(ctx, res.Plan); err != nil {
		return res, err
	}
	err = Locked(ctx, u.Runtime, func(ctx context.Context) error {
		planned := beyondNamespaces(res.Plan)
		u.quiet = true
		res, err = u.prepare(ctx)
		u.quiet = false
		if err != nil {
			return err
		}
		if beyondNamespaces(res.Plan) != planned {
			u.step(stepPlan, Done, res.Plan.Summary()+"; another run has changed the setup since")
		}
		return u.apply(ctx, res)
	})
	return res, err
}

// beyondNamespaces is the summary of a plan without the namespaces, which exist by the time that the lock is held.
func beyondNamespaces(p *plan.Plan) string {
	return (&plan.Plan{Items: slices.DeleteFunc(slices.Clone(p.Items), func(it plan.Item) bool { return it.Kind == "Namespace" })}).Summary()
}

// prepare does everything that writes nothing: it makes the plan, and refuses one that would lose something.
func (u *Up) prepare(ctx context.Context) (*Result, error) {
	before, err := u.Runtime.Record(ctx)
	if err != nil {
		return nil, err
	}
	if err := u.unedited(ctx); err != nil {
		return nil, err
	}
	res := &Result{}
	loaded, err := u.certificates(ctx, before, res)
	if err != nil {
		return nil, u.fail(stepCertificates, err)
	}
	objects, err := render.Objects(u.Topology, res.PKI.State)
	if err != nil {
		return nil, u.fail(stepPlan, err)
	}
	if err := u.sameData(before, objects); err != nil {
		return nil, u.fail(stepPlan, err)
	}
	u.step(stepPreflight, Running, "")
	if err := u.preflight(ctx, objects, false); err != nil {
		return nil, err
	}
	u.step(stepPlan, Running, "")
	whole, err := u.Runtime.Plan(ctx, objects, u.Options.PlanOptions)
	if err != nil {
		err = u.fail(stepPlan, err)
		// An object that is refused has a cause that a check may know better.
		if cause := u.preflight(ctx, objects, true); cause != nil && !strings.Contains(cause.Error(), err.Error()) {
			err = errors.Join(err, cause)
		}
		return nil, err
	}
	res.Plan = restrict(whole, u.Options.Only)
	res.waits = whole.Summary() != res.Plan.Summary() || len(whole.Items) != len(res.Plan.Items)
	if n := len(res.Plan.Conflicts); n > 0 {
		return res, u.fail(stepPlan, clierr.New(clierr.Conflict, "", "%s owned by other field managers; nothing was written",
			count(n, "field is", "fields are")))
	}
	if err := u.guard(ctx, before, loaded, objects, res); err != nil {
		return res, u.fail(stepPlan, err)
	}
	u.step(stepPlan, Done, res.Plan.Summary())
	return res, u.preflight(ctx, changed(res.Plan, objects), true)
}

// preflight asks what would keep objects from being applied. A thorough look at nothing is none.
func (u *Up) preflight(ctx context.Context, objects []render.Object, thorough bool) error {
	ask := u.Preflight
	if ask == nil {
		ask = func(ctx context.Context, objects []render.Object, thorough bool) ([]string, error) {
			if thorough {
				return nil, nil
			}
			return nil, u.Runtime.Preflight(ctx, objects)
		}
	}
	if thorough && len(objects) == 0 || u.quiet {
		return nil // nothing is new, or it was looked at a moment ago
	}
	notes, err := ask(ctx, objects, thorough)
	for _, n := range notes {
		u.emit(Event{Scope: Note, Message: n})
	}
	if err != nil {
		return u.fail(stepPreflight, err)
	}
	if !thorough {
		u.step(stepPreflight, Done, "passed")
	}
	return nil
}

// changed are the objects that a plan creates or changes.
func changed(p *plan.Plan, objects []render.Object) []render.Object {
	does := map[plan.Ref]plan.Action{}
	for _, it := range p.Items {
		does[it.Ref] = it.Action
	}
	return slices.DeleteFunc(slices.Clone(objects), func(o render.Object) bool {
		a := does[plan.RefOf(o.Cluster, o.Unstructured)]
		return a != plan.Create && a != plan.Change
	})
}

// certificates brings the PKI up to date in memory. It returns the one that was loaded.
func (u *Up) certificates(ctx context.Context, before *record.Record, res *Result) (loaded *pki.State, err error) {
	u.step(stepCertificates, Running, "")
	store := u.Runtime.Store()
	if loaded, err = store.Load(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(u.sameAuthorities(before, loaded), u.sameForAll(loaded)); err != nil {
		return nil, err
	}
	state := loaded
	if u.Options.Change != nil {
		if state, err = u.Options.Change(state); err != nil {
			return nil, err
		}
	}
	now := u.Now()
	if res.PKI, err = pki.Ensure(u.Topology, state, pki.Options{Now: now, Renew: u.Options.Renew}); err != nil {
		return nil, err
	}
	if err := pki.Prove(u.Topology, res.PKI.State, now); err != nil {
		return nil, fmt.Errorf("certificates do not fit together: %w", err)
	}
	u.step(stepCertificates, Done, certificatesMessage(res.PKI))
	return loaded, nil
}

// certificatesMessage is one line: 6 kept, 3 created, next expiry 2027-11-20.
func certificatesMessage(r *pki.Result) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{len(r.CAs), "authorities made"}, {r.Created(), "created"}, {r.Renewed(), "renewed"}, {r.Kept, "kept"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(append(parts, "next expiry "+r.NextExpiry.UTC().Format(time.DateOnly)), ", ")
}

// applyNamespaces makes the namespaces first: lock, PKI and inventory live in them.
func (u *Up) applyNamespaces(ctx context.Context, p *plan.Plan) error {
	var items []plan.Item
	for _, it := range p.Items {
		if it.Kind == "Namespace" && it.Action == plan.Create {
			items = append(items, it)
		}
	}
	if len(items) == 0 {
		return nil
	}
	return u.Runtime.Apply(ctx, items, u.Options.PlanOptions)
}

// apply writes the plan. Whatever it makes is remembered before it is made.
func (u *Up) apply(ctx context.Context, res *Result) error {
	if u.Options.Edit != nil {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := u.Options.Edit(); err != nil {
			return err
		}
	}
	if !res.Plan.Empty() {
		if err := u.Runtime.Store().Save(ctx, res.PKI.State); err != nil {
			return fmt.Errorf("save %s: %w", u.Runtime.Store(), err)
		}
		if err := u.Runtime.Begin(ctx, res.Plan, res.record); err != nil {
			return err
		}
	}
	if err := u.components(ctx, res); err != nil {
		return err
	}
	if !u.Options.SkipCanary && !res.Plan.Empty() {
		// Before the run counts as finished: the next one then tries again, and nothing is deleted until kcp serves.
		if err := u.canaries(ctx, res.PKI.State); err != nil {
			return err
		}
	}
	return u.Runtime.Finish(ctx, res.Plan, res.record, u.applied(res))
}

func (u *Up) emit(e Event) {
	e.Time = u.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.Observe(e)
}

func (u *Up) step(name string, s Status, message string) {
	if u.quiet && s != Failed {
		return
	}
	u.emit(Event{Scope: Step, Name: name, Status: s, Message: message})
}

func (u *Up) component(id topology.ID, s Status, message string) {
	u.emit(Event{Scope: Component, Name: string(id), Status: s, Message: message})
}

// fail reports a step as failed.
func (u *Up) fail(name string, err error) error {
	if !errors.Is(err, context.Canceled) {
		u.step(name, Failed, firstLine(err))
	}
	return err
}

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
	// Setup is the setup file as it is remembered once it is applied.
	Setup   []byte
	Observe Observer
	Now     func() time.Time
	Options UpOptions

	// Preflight looks for what would keep objects from being applied, and returns what is worth saying besides. It is asked
	// twice: for all objects, and thoroughly for those that the plan creates or changes. Nil is the runtime's own, once.
	Preflight func(ctx context.Context, objects []render.Object, thorough bool) (notes []string, err error)

	mu     sync.Mutex  // components report at once, the observer is told one at a time
	failed atomic.Bool // the root shard did not become ready
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
	// Serial changes running components one after another, each behind its gate, so that what has replicas never stops
	// serving.
	Serial bool
	// Timeout limits the wait for readiness.
	Timeout time.Duration
	// Change changes the PKI that was loaded before what it lacks is issued: a step of a rotation, authorities that are
	// brought. It is called again if another run wrote meanwhile. Nil changes nothing.
	Change func(*pki.State) (*pki.State, error)
	// Renew tells which certificates to issue anew. Nil is those that are due.
	Renew func(pki.Cert) bool
}

// Result is what a run did, or would do.
type Result struct {
	Plan *plan.Plan
	PKI  *pki.Result
}

// maxRounds is how often a plan is made anew because another run wrote in between.
const maxRounds = 5

// Run plans, applies, waits and checks. With a conflict it writes nothing and the Result has the plan.
func (u *Up) Run(ctx context.Context) (*Result, error) {
	res, generation, err := u.prepare(ctx)
	if err != nil || u.Options.DryRun {
		return res, err
	}
	if res.Plan.Empty() {
		return res, u.waitAll(ctx, res)
	}
	if err := u.applyNamespaces(ctx, res.Plan); err != nil {
		return res, err
	}
	unlock, err := u.Runtime.Lock(ctx)
	if err != nil {
		return res, err
	}
	defer unlock()
	for range maxRounds {
		now, err := u.Runtime.Generation(ctx)
		if err != nil {
			return res, err
		}
		if now == generation {
			return res, u.apply(ctx, res)
		}
		// Another run wrote before we held the lock: what it made must be kept.
		if res, generation, err = u.prepare(ctx); err != nil {
			return res, err
		}
	}
	return res, clierr.New(clierr.Conflict, "find out what else writes to this setup, then run the command again",
		"the setup's state in %s keeps changing although this run holds its lock", u.Runtime.Where())
}

// prepare does everything that writes nothing: it returns the plan and the generation that it holds for.
func (u *Up) prepare(ctx context.Context) (*Result, string, error) {
	generation, err := u.Runtime.Generation(ctx)
	if err != nil {
		return nil, "", err
	}
	res := &Result{}
	if res.PKI, err = u.certificates(ctx); err != nil {
		return nil, "", u.fail(stepCertificates, err)
	}
	objects, err := render.Objects(u.Topology, res.PKI.State)
	if err != nil {
		return nil, "", u.fail(stepPlan, err)
	}
	u.step(stepPreflight, Running, "")
	if err := u.preflight(ctx, objects, false); err != nil {
		return nil, "", err
	}
	u.step(stepPlan, Running, "")
	if res.Plan, err = u.Runtime.Plan(ctx, objects, u.Options.PlanOptions); err != nil {
		err = u.fail(stepPlan, err)
		// An object that is refused has a cause that a check may know better.
		if cause := u.preflight(ctx, objects, true); cause != nil && !strings.Contains(cause.Error(), err.Error()) {
			err = errors.Join(err, cause)
		}
		return nil, "", err
	}
	res.Plan = restrict(res.Plan, u.Options.Only)
	if n := len(res.Plan.Conflicts); n > 0 {
		return res, "", u.fail(stepPlan, clierr.New(clierr.Conflict, "", "%s owned by other field managers; nothing was written",
			count(n, "field is", "fields are")))
	}
	if err := guard(res.Plan, u.Options.PlanOptions); err != nil {
		return res, "", u.fail(stepPlan, err)
	}
	u.step(stepPlan, Done, res.Plan.Summary())
	return res, generation, u.preflight(ctx, changed(res.Plan, objects), true)
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
	if thorough && len(objects) == 0 {
		return nil
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

func (u *Up) certificates(ctx context.Context) (*pki.Result, error) {
	u.step(stepCertificates, Running, "")
	state, err := u.Runtime.Store().Load(ctx)
	if err != nil {
		return nil, err
	}
	if u.Options.Change != nil {
		if state, err = u.Options.Change(state); err != nil {
			return nil, err
		}
	}
	now := u.Now()
	res, err := pki.Ensure(u.Topology, state, pki.Options{Now: now, Renew: u.Options.Renew})
	if err != nil {
		return nil, err
	}
	if err := pki.Prove(u.Topology, res.State, now); err != nil {
		return nil, fmt.Errorf("certificates do not fit together: %w", err)
	}
	u.step(stepCertificates, Done, certificatesMessage(res))
	return res, nil
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
	if err := u.Runtime.Store().Save(ctx, res.PKI.State); err != nil {
		return fmt.Errorf("save %s: %w", u.Runtime.Store(), err)
	}
	if err := u.Runtime.Begin(ctx, res.Plan); err != nil {
		return err
	}
	if err := u.components(ctx, res); err != nil {
		return err
	}
	if !u.Options.SkipCanary {
		// Before the run counts as finished: the next one then tries again, and nothing is deleted until kcp serves.
		if err := u.canaries(ctx, res.PKI.State); err != nil {
			return err
		}
	}
	return u.Runtime.Finish(ctx, res.Plan, u.Setup)
}

// waitAll is the end of a run that changes nothing: components may still be starting, or broken.
func (u *Up) waitAll(ctx context.Context, res *Result) error {
	return u.components(ctx, res)
}

func (u *Up) emit(e Event) {
	e.Time = u.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.Observe(e)
}

func (u *Up) step(name string, s Status, message string) {
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

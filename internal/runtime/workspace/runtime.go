// Package workspace applies objects in workspaces of kcp through a front-proxy: server-side apply, conflicts, pruning
// and readiness, as for the objects of a cluster. Runtime adds this to another runtime.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// answerTime is how long kcp may take to answer the first request of a comparison.
const answerTime = 10 * time.Second

// Runtime is a runtime whose plans also have objects in workspaces, and on other clusters than the setup's. Everything
// else it leaves to the runtime below, which runs kcp.
type Runtime struct {
	run.Runtime
	topology *topology.Topology
	open     Open
	now      func() time.Time

	mu sync.Mutex
	// known is the record that was read last, and state the PKI of the last plan or apply. Both can be nil.
	known *record.Record
	state *pki.State
	left  []plan.Unreachable
	// client is connected with state.
	client *kcp.Client
	// removed are physical clusters that the setup no longer has, by name.
	removed map[string]v1alpha1.WorkloadCluster
	// notify is called with messages for the user.
	notify func(string)
}

// Wrap adds objects in workspaces, and on physical clusters, to a runtime.
func Wrap(below run.Runtime, t *topology.Topology, open Open, now func() time.Time, notify func(string)) *Runtime {
	return &Runtime{Runtime: below, topology: t, open: open, now: now, notify: notify}
}

// Reach makes the runtime connect to physical clusters that the setup no longer has, so that the objects there can be
// deleted. Without it, they are kept.
func (r *Runtime) Reach(removed ...v1alpha1.WorkloadCluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = map[string]v1alpha1.WorkloadCluster{}
	for _, c := range removed {
		r.removed[c.Name] = c
	}
}

// Below returns the runtime that runs kcp: the one that Wrap was given.
func Below(rt run.Runtime) run.Runtime {
	if r, ok := rt.(*Runtime); ok {
		return r.Runtime
	}
	return rt
}

// Record returns the record of the installation.
func (r *Runtime) Record(ctx context.Context) (*record.Record, error) {
	known, err := r.Runtime.Record(ctx)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.known = known
	}
	return known, err
}

// Installation returns the ID of the installation if a record of it was read or written, else "".
func (r *Runtime) Installation() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		return ""
	}
	return r.known.Installation
}

// LeaveOut makes the following calls leave some clusters out.
func (r *Runtime) LeaveOut(all []plan.Unreachable) {
	r.mu.Lock()
	r.left = all
	r.mu.Unlock()
	r.Runtime.LeaveOut(all)
}

// Close closes the connection to kcp, and the runtime below.
func (r *Runtime) Close() error {
	r.use(nil)
	return r.Runtime.Close()
}

// use makes the following calls connect with a PKI. Nil is the PKI of the store.
func (r *Runtime) use(state *pki.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == state && state != nil {
		return
	}
	if r.client != nil {
		r.client.Close()
	}
	r.state = state
	r.client = nil
}

// connect returns a client of a front-proxy, and of clusters. It sends no request to them.
func (r *Runtime) connect(ctx context.Context) (*objects, error) {
	out, err := r.clusters(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil {
		if r.client, err = run.ConnectFrontProxy(r.Runtime, r.topology, r.left, r.state, r.now()); err != nil {
			return nil, err
		}
	}
	out.client = r.client
	return out, nil
}

// clusters returns the objects of clusters, without a client of kcp.
func (r *Runtime) clusters(ctx context.Context) (*objects, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		known, err := r.Runtime.Record(ctx)
		if err != nil {
			return nil, err
		}
		r.known = known
	}
	if r.state == nil || len(r.state.CAs) == 0 {
		state, err := r.Store().Load(ctx)
		if err != nil {
			return nil, err
		}
		r.state = state
	}
	out := &objects{topology: r.topology, open: r.open, removed: r.removed, notify: r.notify,
		installations: []string{r.state.Installation.ID, r.known.Installation}, shards: map[string]labels.Set{}}
	for _, c := range r.topology.Shards() {
		out.shards[c.ShardName()] = c.SchedulingLabels()
	}
	return out, nil
}

// Plan compares the objects on clusters and in workspaces.
func (r *Runtime) Plan(ctx context.Context, all []render.Object, o run.PlanOptions) (*plan.Plan, error) {
	if o.PKI != nil {
		r.use(o.PKI)
	}
	r.mu.Lock()
	known := r.known
	r.mu.Unlock()
	if known == nil {
		var err error
		if known, err = r.Record(ctx); err != nil {
			return nil, err
		}
	}
	var inside, outside []render.Object
	for _, object := range all {
		if object.Workspace != "" {
			inside = append(inside, object)
		} else {
			outside = append(outside, object)
		}
	}
	if len(inside)+len(known.Placed) == 0 {
		return r.Runtime.Plan(ctx, all, o)
	}
	outside, err := r.withCredentials(ctx, outside)
	if err != nil {
		return nil, err
	}
	out, err := r.Runtime.Plan(ctx, outside, o)
	if err != nil {
		return nil, err
	}
	onClusters, inKcp := divided(inside, func(o render.Object) string { return o.Workspace })
	beforeOnClusters, beforeInKcp := divided(known.Placed, func(o record.Placed) string { return o.Workspace })
	if err := r.planClusters(ctx, out, onClusters, beforeOnClusters, o); err != nil {
		return nil, err
	}
	if known.Empty() { // kcp was never up
		for _, object := range inKcp {
			out.Items = append(out.Items, itemOf(object, plan.Create))
		}
		return out, nil
	}
	return out, r.planInside(ctx, out, inKcp, beforeInKcp, o)
}

// divided separates the objects on clusters from the objects in workspaces.
func divided[T any](all []T, place func(T) string) (onClusters, inKcp []T) {
	for _, o := range all {
		if topology.IsKubernetes(place(o)) {
			onClusters = append(onClusters, o)
		} else {
			inKcp = append(inKcp, o)
		}
	}
	return onClusters, inKcp
}

// planInside adds the objects in workspaces to a plan. If kcp does not answer, they are unknown, and compared when it
// does.
func (r *Runtime) planInside(ctx context.Context, p *plan.Plan, inside []render.Object, placed []record.Placed,
	o run.PlanOptions) error {
	if len(inside)+len(placed) == 0 {
		return nil
	}
	s, err := r.connect(ctx)
	if err == nil {
		err = s.answers(ctx)
	}
	if err != nil && ctx.Err() == nil {
		p.NoAnswer = err
		p.Stale = true
		for _, object := range inside {
			p.Items = append(p.Items, itemOf(object, plan.Unknown))
		}
		p.Items = append(p.Items, unknown(p.Items, placed)...)
		return nil
	}
	if err != nil {
		return err
	}
	return s.addTo(ctx, p, inside, placed, o)
}

// addTo compares objects, and adds them to a plan.
func (s *objects) addTo(ctx context.Context, p *plan.Plan, wanted []render.Object, placed []record.Placed,
	o run.PlanOptions) error {
	added, err := s.planner(o.Force).plan(ctx, wanted, placed, o)
	if err != nil {
		return err
	}
	p.Items = append(p.Items, added.Items...)
	p.Conflicts = append(p.Conflicts, added.Conflicts...)
	p.NoAnswer = added.NoAnswer
	p.Stale = p.Stale || added.Stale
	return nil
}

// unknown are the objects of previous runs that are not among items. They have nothing to apply.
func unknown(items []plan.Item, placed []record.Placed) []plan.Item {
	var out []plan.Item
	for _, o := range placed {
		if !slices.ContainsFunc(items, func(it plan.Item) bool { return it.Ref == o.Ref() }) {
			out = append(out, plan.Item{Ref: o.Ref(), Component: o.Component, Action: plan.Unknown})
		}
	}
	return out
}

// answers fails if kcp does not answer.
func (s *objects) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer after %s", answerTime))
	defer cancel()
	_, err := s.client.Object(ctx, plan.Ref{Workspace: kcp.RootWorkspace,
		GroupVersionKind: kcpapi.LogicalCluster.GroupVersionKind, Name: "cluster"})
	if err != nil {
		return clierr.New(clierr.Failed, "see kcpctl status", "kcp does not answer: %w",
			errors.Join(context.Cause(ctx), err))
	}
	return nil
}

// Apply writes objects, first the objects in workspaces, because processes on clusters may use them.
func (r *Runtime) Apply(ctx context.Context, items []plan.Item, o run.PlanOptions) error {
	inside, outside := plan.InWorkspaces(items)
	inside = slices.DeleteFunc(inside, func(it plan.Item) bool { return it.Want == nil })
	if len(inside) > 0 {
		if o.PKI != nil {
			r.use(o.PKI)
		}
		s, err := r.connect(ctx)
		if err != nil {
			return err
		}
		report := o.Waiting
		if report == nil {
			report = func(string) {}
		}
		if err := s.apply(ctx, inside, o.Force, report); err != nil {
			return err
		}
	}
	if len(outside) == 0 && len(items) > 0 {
		return nil
	}
	for i := range outside {
		if err := r.issue(ctx, &outside[i]); err != nil {
			return err
		}
	}
	return r.Runtime.Apply(ctx, outside, o)
}

// Begin remembers the objects of a plan. The objects in workspaces are in the record.
func (r *Runtime) Begin(ctx context.Context, p *plan.Plan, rec *record.Record) error {
	return r.remember(rec, r.Runtime.Begin(ctx, below(p), rec))
}

// remember keeps the record that was written.
func (r *Runtime) remember(rec *record.Record, err error) error {
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.known = rec
	}
	return err
}

// Finish deletes what the plan deletes, in workspaces first, and remembers what was applied.
func (r *Runtime) Finish(ctx context.Context, p *plan.Plan, rec *record.Record, a plan.Applied) error {
	inside, _ := plan.InWorkspaces(p.Deletions())
	if err := r.deleteInside(ctx, inside); err != nil {
		return err
	}
	return r.remember(rec, r.Runtime.Finish(ctx, below(p), rec, a))
}

// below returns the part of a plan that is about clusters.
func below(p *plan.Plan) *plan.Plan {
	out := *p
	_, out.Items = plan.InWorkspaces(p.Items)
	return &out
}

// Delete deletes objects, first the objects in workspaces, and waits until they are gone.
func (r *Runtime) Delete(ctx context.Context, items []plan.Item) error {
	inside, outside := plan.InWorkspaces(items)
	if err := r.deleteInside(ctx, inside); err != nil || len(outside) == 0 && len(items) > 0 {
		return err
	}
	return r.Runtime.Delete(ctx, outside)
}

func (r *Runtime) deleteInside(ctx context.Context, items []plan.Item) error {
	if len(items) == 0 {
		return nil
	}
	s, err := r.connect(ctx)
	if err != nil {
		return err
	}
	return s.delete(ctx, items)
}

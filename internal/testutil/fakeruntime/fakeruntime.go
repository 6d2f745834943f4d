// Package fakeruntime is a runtime for tests: it keeps in memory what a run applies, and its kcp is a fake.
package fakeruntime

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// Runtime is a run.Runtime in memory. A component is ready as soon as it is applied, unless the test scripts its
// states.
type Runtime struct {
	Kcp *fakekcp.Kcp
	// Conflicts are the conflicts of the next plans.
	Conflicts []plan.Conflict
	// Place is what checks can ask. It has no clusters, unless the test adds some.
	Place check.Facts
	// Assigned answers Addresses for what is applied. Nil assigns nothing.
	Assigned func(live map[plan.Ref]plan.Item) map[topology.ID]run.Assigned
	// Made are objects that components have made themselves.
	Made []plan.Item
	// Predecessor is the PKI of the installation that the setup takes over.
	Predecessor *pki.State
	// PredecessorRelease is the release of its servers.
	PredecessorRelease string
	// Command is the command of runs. Default: kcpctl test.
	Command string
	// Current is the run that holds the lock. The test sets it.
	Current *record.Run
	// Lost are the clusters that cannot be reached.
	Lost []plan.Unreachable

	topology *topology.Topology

	mu        sync.Mutex
	stale     bool
	begun     *record.Run // by the last Begin without a Finish
	record    *record.Record
	noted     int64  // the serial of the record, outside of it
	notedID   string // the installation of the record, outside of it
	pki       *pki.State
	live      map[plan.Ref]plan.Item
	calls     []string
	hooks     map[string]func() error
	logged    map[topology.ID]string
	states    map[topology.ID][]ready.State
	replicas  map[topology.ID]int32 // of components that were scaled
	history   []plan.Revision
	lose      context.CancelCauseFunc
	namespace bool // it was created
	left      []plan.Unreachable
	storage
}

var _ run.Runtime = (*Runtime)(nil)

// Addresses returns what Assigned says.
func (r *Runtime) Addresses(context.Context, []*topology.Component) (map[topology.ID]run.Assigned, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Assigned == nil {
		return nil, nil
	}
	return r.Assigned(r.live), nil
}

// New returns a runtime that nothing was applied to yet.
func New(t testing.TB, top *topology.Topology) *Runtime {
	return &Runtime{
		Kcp: fakekcp.New(t), topology: top, pki: &pki.State{}, live: map[plan.Ref]plan.Item{},
		hooks: map[string]func() error{}, states: map[topology.ID][]ready.State{}, replicas: map[topology.ID]int32{},
		logged: map[topology.ID]string{},
	}
}

func (r *Runtime) hook(call string) error {
	r.mu.Lock()
	do := r.hooks[call]
	r.mu.Unlock()
	if do == nil {
		return nil
	}
	return do()
}

// write runs the hook of a call and records it.
func (r *Runtime) write(ctx context.Context, call string) error {
	if err := r.hook(call); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	return ctx.Err()
}

// Where returns a fixed place.
func (r *Runtime) Where() string { return "memory" }

// Store returns the store in memory.
func (r *Runtime) Store() pki.Store { return (*store)(r) }

// Facts returns Place.
func (r *Runtime) Facts() check.Facts { return r.Place }

// Plan compares the objects with those that were applied.
func (r *Runtime) Plan(_ context.Context, objects []render.Object, options run.PlanOptions) (*plan.Plan, error) {
	if err := r.hook("Plan"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &plan.Plan{Stale: r.stale || r.remembersLeft(), Conflicts: r.Conflicts, Unreachable: r.left}
	wanted := map[plan.Ref]bool{}
	for _, o := range objects {
		it := plan.Item{Ref: o.Ref(), Component: o.Component, Action: plan.Create, Want: o.Unstructured}
		if _, left := plan.UnreachableIn(r.left, o.Cluster); left {
			it.Action = plan.Unknown
		} else if live, ok := r.live[it.Ref]; ok {
			it.Live, it.Want, it.Action = live.Live, plan.KeepRestart(it.Want, live.Live), plan.Change
			if plan.Same(it.Live, it.Want) {
				it.Action = plan.Unchanged
			}
		}
		wanted[it.Ref] = true
		p.Items = append(p.Items, it)
		if options.Progress != nil {
			options.Progress(len(p.Items), len(objects))
		}
	}
	for _, it := range r.sorted() {
		if _, left := plan.UnreachableIn(r.left, it.Cluster); !left && !wanted[it.Ref] {
			it.Action = plan.Delete
			p.Items = append(p.Items, it)
		}
	}
	return p, nil
}

// Record returns the record of the last Begin or Finish.
func (r *Runtime) Record(context.Context) (*record.Record, error) {
	if err := r.hook("Record"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.requireReachable(); err != nil {
		return nil, err
	}
	out := &record.Record{}
	if r.record != nil {
		out = r.record.Purge() // a copy
		out.Witnessed = 0      // it is not stored
		out.Unwitnessed = false
		out.Format = out.Format.Next("test")
	} else {
		out.Lost = r.notedID
	}
	out.Witness(r.noted)
	return out, nil
}

// keep keeps a record, and notes its serial. The caller holds r.mu.
func (r *Runtime) keep(rec *record.Record) {
	if rec.Empty() {
		return
	}
	r.record = rec.Numbered(r.record)
	r.noted = max(r.noted, r.record.Serial)
	r.notedID = r.record.Installation
}

// placed reports whether the namespace of the setup exists. Only a purge deletes it.
func (r *Runtime) placed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.topology.Local() || r.namespace
}

// Lose makes the run that holds the lock lose it, with a cause.
func (r *Runtime) Lose(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose(cause)
}

// Begin marks the installation as stale until Finish.
func (r *Runtime) Begin(ctx context.Context, _ *plan.Plan, rec *record.Record) error {
	if err := r.write(ctx, "Begin"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = true
	r.begun = &record.Run{Command: cmp.Or(r.Command, "kcpctl test"), User: "ann", PID: 7, Since: time.Now()}
	r.keep(rec)
	return nil
}

// Apply keeps objects. A shard that is applied registers itself.
func (r *Runtime) Apply(ctx context.Context, items []plan.Item, _ run.PlanOptions) error {
	what := string(items[0].Component)
	if items[0].Kind == "Namespace" {
		what = "namespaces"
	}
	if err := r.write(ctx, "Apply "+what); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range items {
		r.namespace = r.namespace || it.Kind == "Namespace"
		it.Live, it.Action = it.Want.DeepCopy(), plan.Unchanged
		r.live[it.Ref] = it
		r.provide(r.topology.Name, it)
	}
	if c := r.topology.Component(items[0].Component); c.IsShard() {
		r.Kcp.Register(kcp.Shard{Name: c.ShardName(), BaseURL: c.URL, ExternalURL: c.ExternalURL,
			VirtualWorkspaceURL: c.VirtualWorkspaceURL})
	}
	return nil
}

// Finish deletes what the plan deletes.
func (r *Runtime) Finish(ctx context.Context, p *plan.Plan, rec *record.Record, a plan.Applied) error {
	if err := r.write(ctx, "Finish"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range p.Deletions() {
		delete(r.live, it.Ref)
	}
	r.stale = false
	r.keep(rec)
	r.history = plan.Remember(r.history, plan.Revision{Setup: a.Setup, File: a.File, Only: a.Only, Without: a.Without})
	return nil
}

// State returns the next scripted state, or else whether the component was applied.
func (r *Runtime) State(ctx context.Context, c *topology.Component) (ready.State, error) {
	if err := r.hook("State " + string(c.ID())); err != nil {
		return ready.State{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, lost := plan.UnreachableIn(r.Lost, c.Cluster.Name); lost {
		return ready.State{}, l.Err
	}
	if next := r.states[c.ID()]; len(next) > 0 {
		if len(next) > 1 {
			r.states[c.ID()] = next[1:]
		}
		return next[0], ctx.Err()
	}
	if !r.applied(c.ID()) {
		return ready.State{Reason: "is not there", Replicas: c.Replicas}, ctx.Err()
	}
	n := c.Replicas
	if scaled, ok := r.replicas[c.ID()]; ok {
		n = scaled
	}
	return ready.State{Ready: true, Replicas: n, ReadyReplicas: n, Version: c.Version}, ctx.Err()
}

// Scale sets the number of replicas.
func (r *Runtime) Scale(ctx context.Context, c *topology.Component, replicas int32) error {
	if err := r.write(ctx, fmt.Sprintf("Scale %s %d", c.ID(), replicas)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replicas[c.ID()] = replicas
	for ref, it := range r.live {
		if it.Component == c.ID() && it.Live.GetKind() == "Deployment" {
			it.Live = it.Live.DeepCopy()
			it.Live.Object["spec"].(map[string]any)["replicas"] = int64(replicas)
			r.live[ref] = it
		}
	}
	return nil
}

func (r *Runtime) applied(id topology.ID) bool {
	for _, it := range r.live {
		if it.Component == id {
			return true
		}
	}
	return false
}

// Dial connects to the fake kcp, which serves with the component's own certificate.
func (r *Runtime) Dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	r.mu.Lock()
	applied, state := r.applied(c.ID()), r.pki
	l, lost := plan.UnreachableIn(r.Lost, c.Cluster.Name)
	r.mu.Unlock()
	if lost {
		return nil, l.Err
	}
	if !applied {
		return nil, fmt.Errorf("connect to %s: connection refused", c.ID())
	}
	leaf := state.Leaves[pki.KeyOf(c, topology.CertServer)]
	accepted := slices.Concat(state.CAs[topology.ClientCA].Trusted(), state.CAs[topology.RequestHeaderCA].Trusted())
	if c.Kind == topology.Etcd {
		accepted = state.CAs[topology.EtcdCA].Trusted()
	}
	r.Kcp.Serve(string(c.ID()), leaf, accepted)
	return r.Kcp.Dial(ctx, string(c.ID()))
}

// History returns the setups that were applied.
func (r *Runtime) History(context.Context) ([]plan.Revision, error) {
	if err := r.hook("History"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.history, nil
}

// Objects returns what was applied, except for objects in workspaces, which are part of the data of kcp.
func (r *Runtime) Objects(context.Context) ([]plan.Item, error) {
	if err := r.hook("Objects"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.requireReachable(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.sorted(),
		func(it plan.Item) bool { return it.Workspace != "" && !topology.IsKubernetes(it.Workspace) }), nil
}

// InWorkspaces returns what was applied to workspaces of kcp.
func (r *Runtime) InWorkspaces() []plan.Item {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(r.sorted(),
		func(it plan.Item) bool { return it.Workspace == "" || topology.IsKubernetes(it.Workspace) })
}

func (r *Runtime) sorted() []plan.Item {
	var out []plan.Item
	for _, it := range r.live {
		out = append(out, it)
	}
	slices.SortFunc(out, func(a, b plan.Item) int { return strings.Compare(a.Cluster+a.Ref.String(), b.Cluster+b.Ref.String()) })
	return out
}

// Delete deletes objects.
func (r *Runtime) Delete(ctx context.Context, items []plan.Item) error {
	var ids []string
	for _, it := range items {
		if id := string(it.Component); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if err := r.write(ctx, "Delete "+strings.Join(ids, " ")); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range items {
		if live, ok := r.live[it.Ref]; ok && it.Live != nil && !plan.Same(it.Live, live.Live) {
			return fmt.Errorf("%s was changed after this run read it, and was not deleted", it.Ref)
		}
		delete(r.live, it.Ref)
		r.Made = slices.DeleteFunc(r.Made, func(made plan.Item) bool { return made.Ref == it.Ref })
	}
	return nil
}

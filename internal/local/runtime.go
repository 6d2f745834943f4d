// Package local runs a setup on this machine, without Kubernetes. It applies the same rendered objects: a Deployment
// becomes a process, what it mounts becomes files in the state directory, and Services become ports of the loopback
// interface.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/local/disk"
	"github.com/kcpctl/kcpctl/internal/local/download"
	"github.com/kcpctl/kcpctl/internal/local/ports"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/ready"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// parallel is how many processes are started or stopped concurrently.
const parallel = 16

// Options configure a Runtime.
type Options struct {
	// Version is the version of kcpctl, and User the user who runs it. Both are recorded in the history.
	Version, User string
	// Binaries configures where kcp's binaries come from.
	Binaries Binaries
	// Store keeps the PKI. Nil is a directory below the state directory.
	Store pki.Store
	// References is the directory with the Secrets and ConfigMaps that the setup file refers to: secrets/NAME/KEY and
	// configmaps/NAME/KEY. Empty: there are none.
	References string
	// Now is the clock.
	Now func() time.Time
}

// Runtime runs the components of a setup as processes of this machine. They outlive it.
type Runtime struct {
	topology   *topology.Topology
	layout     *Layout
	options    Options
	prober     *prober
	supervisor *supervisor
	// keepsPKI means that the PKI is in a directory outside the state directory.
	keepsPKI bool
	// hostAddress returns an error if kcp would not find an address of this machine.
	hostAddress func() error
}

var _ run.Runtime = (*Runtime)(nil)

// PreflightPurge finds nothing: Purge only deletes files of the state directory.
func (r *Runtime) PreflightPurge(context.Context) error { return nil }

// KeepsPKI reports whether Purge keeps the PKI, because it is not in the state directory.
func (r *Runtime) KeepsPKI() bool { return r.keepsPKI }

// New returns the runtime of a topology that the layout returned. It starts nothing.
func New(t *topology.Topology, l *Layout, o Options) *Runtime {
	o.Binaries.known = &sync.Map{}
	o.Binaries.Source.Progress = serialize(o.Binaries.Source.Progress)
	keepsPKI := o.Store != nil
	if !keepsPKI {
		o.Store = store{pki.DirectoryStore(l.path(dirPKI))}
	}
	p := &prober{store: o.Store}
	return &Runtime{
		topology: t, layout: l, options: o, prober: p, keepsPKI: keepsPKI, hostAddress: hostAddress,
		supervisor: &supervisor{layout: l, prober: p, now: o.Now, supervised: map[string]*supervised{}},
	}
}

// store is a PKI in the state directory.
type store struct{ pki.Store }

func (s store) Save(ctx context.Context, state *pki.State) error {
	return explain(s.Store.Save(ctx, state))
}

// Forget deletes certificates from the store.
func (s store) DeleteLeaves(ctx context.Context, keys []pki.LeafKey) error {
	return explain(s.Store.DeleteLeaves(ctx, keys))
}

// serialize makes concurrent downloads report one after another.
func serialize(report func(download.Progress)) func(download.Progress) {
	if report == nil {
		return nil
	}
	var mu sync.Mutex
	return func(p download.Progress) {
		mu.Lock()
		defer mu.Unlock()
		report(p)
	}
}

// Where describes where the setup's files are.
func (r *Runtime) Where() string { return "this machine, " + r.layout.Dir }

// Store keeps the setup's PKI.
func (r *Runtime) Store() pki.Store { return r.options.Store }

// Close closes connections, and rotates long logs, which no process does while kcpctl is not running. It stops no
// process.
func (r *Runtime) Close() error {
	r.prober.forget()
	r.layout.ports.Release()
	return r.layout.rotateLogs(maxLog)
}

// Record returns the record of the installation on this machine.
func (r *Runtime) Record(context.Context) (*record.Record, error) {
	raw, err := os.ReadFile(r.layout.path(fileRecord))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return record.Decode(raw)
}

func (r *Runtime) writeRecord(rec *record.Record) error {
	if rec.Empty() {
		return nil
	}
	raw, err := rec.Encode()
	if err != nil {
		return err
	}
	return disk.WriteState(r.layout.path(fileRecord), raw)
}

// Begin records the ports, finds or downloads the binaries that the plan needs, and marks the setup as being applied
// until Finish. It does not record the objects: Apply records each one before it has an effect.
func (r *Runtime) Begin(ctx context.Context, p *plan.Plan, rec *record.Record) error {
	if err := r.layout.ports.Commit(ctx); err != nil {
		return err
	}
	if err := r.fetch(ctx, p); err != nil {
		return err
	}
	if err := r.writeRecord(rec); err != nil {
		return err
	}
	return disk.WriteState(r.layout.path(fileApplying), nil)
}

// applying reports whether a run has begun and not finished.
func (r *Runtime) applying() bool {
	_, err := os.Stat(r.layout.path(fileApplying))
	return err == nil
}

// Finish deletes what the plan deletes, records what was applied, and removes the mark that Begin has made.
func (r *Runtime) Finish(ctx context.Context, p *plan.Plan, rec *record.Record, a plan.Applied) error {
	if err := r.Delete(ctx, p.Deletions()); err != nil {
		return err
	}
	if err := r.writeRecord(rec); err != nil {
		return err
	}
	if err := r.addRevision(ctx, a); err != nil {
		return err
	}
	return disk.RemoveState(r.layout.path(fileApplying))
}

func (r *Runtime) addRevision(ctx context.Context, a plan.Applied) error {
	before, err := r.History(ctx)
	if err != nil {
		return err
	}
	after := plan.Remember(before, plan.Revision{
		Time: r.options.Now(), Version: r.options.Version, User: r.options.User, Setup: a.Setup, Only: a.Only,
	})
	if len(after) == 0 || len(before) > 0 && before[len(before)-1].Number == after[len(after)-1].Number {
		return nil
	}
	files, err := plan.EncodeHistory(after)
	if err != nil {
		return err
	}
	return r.layout.writeHistory(files)
}

func (l *Layout) writeHistory(files map[string][]byte) error {
	for name, content := range files {
		if err := disk.WriteState(l.path(dirHistory, name), content); err != nil {
			return err
		}
	}
	old, err := os.ReadDir(l.path(dirHistory))
	if err != nil {
		return err
	}
	for _, f := range old {
		if _, ok := files[f.Name()]; !ok {
			if err := disk.RemoveState(l.path(dirHistory, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// History returns the setups that were applied last, oldest first.
func (r *Runtime) History(context.Context) ([]plan.Revision, error) {
	files, err := os.ReadDir(r.layout.path(dirHistory))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	data := map[string][]byte{}
	for _, f := range files {
		if data[f.Name()], err = os.ReadFile(r.layout.path(dirHistory, f.Name())); err != nil {
			return nil, err
		}
	}
	return plan.DecodeHistory(data)
}

// Objects returns everything that was applied, by component.
func (r *Runtime) Objects(context.Context) ([]plan.Item, error) {
	all, err := r.layout.entries()
	if err != nil {
		return nil, err
	}
	var items []plan.Item
	for _, e := range all {
		items = append(items, e.item(plan.Unchanged))
	}
	slices.SortStableFunc(items, func(a, b plan.Item) int {
		return strings.Compare(string(a.Component), string(b.Component))
	})
	return items, nil
}

// Purge removes everything that Delete keeps: data, PKI, ports, history.
func (r *Runtime) Purge(context.Context) error {
	all, err := r.layout.workloads()
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		live, _, err := r.layout.locate(all[id])
		if err != nil {
			return err
		}
		if len(live) > 0 {
			return clierr.New(clierr.Failed, "run kcpctl down --local first",
				"%s is still running (pid %d)", all[id].name, live[0].PID)
		}
	}
	if err := os.RemoveAll(r.layout.Dir); err != nil {
		return explain(err)
	}
	r.layout.ports.RemoveRoot()
	return nil
}

// PurgeData deletes the directory of a component, whose process has ended.
func (r *Runtime) PurgeData(_ context.Context, id topology.ID) error {
	object := topology.Object(r.layout.Setup, id.Kind(), id.Name())
	return explain(os.RemoveAll(topology.ComponentDir(r.layout.Dir, object)))
}

// State returns whether the process of a component is running, and what it answers to the readiness probe.
func (r *Runtime) State(ctx context.Context, c *topology.Component) (ready.State, error) {
	if !c.Runs() {
		return ready.State{Ready: true}, nil
	}
	o, err := r.supervisor.observe(ctx, c)
	if err != nil {
		return ready.State{}, err
	}
	s := ready.State{Replicas: 1, Reason: o.reason, Stuck: o.final}
	if o.processRecord != nil {
		s.Version, s.Restarts, s.Since = o.Binary.Version, o.Restarts, o.StartedAt
	}
	if !o.alive {
		s.Detail = r.layout.lastLog(c.Object())
		if o.final {
			if taken := r.layout.ports.Taken(c.ID()); len(taken) > 0 {
				s.Reason += ": " + strings.Join(taken, "; ")
			}
		}
		return s, nil
	}
	if s.Reason = r.prober.unready(ctx, c.Kind, c.Port); s.Reason == "" {
		s.Ready, s.ReadyReplicas = true, 1
	}
	return s, nil
}

// watchPeriod is the interval at which Wait checks the processes.
const watchPeriod = 500 * time.Millisecond

// Wait watches the processes until ctx ends, restarts those that crash, and rotates long logs. It fails if a process
// cannot be restarted, or if another run stops it.
func (r *Runtime) Wait(ctx context.Context) error {
	for {
		for _, c := range r.topology.Components {
			if !c.Runs() {
				continue
			}
			o, err := r.supervisor.observe(ctx, c)
			if err != nil {
				return err
			}
			if o.final {
				msg := append([]string{string(c.ID()) + " " + o.reason}, r.layout.lastLog(c.Object())...)
				return clierr.New(clierr.Failed, "rerun the command", "%s", strings.Join(msg, "\n    "))
			}
		}
		if err := r.layout.rotateLogs(maxLog); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPeriod):
		}
	}
}

// Addresses returns nothing: on this machine every component has an address of its own choice.
func (r *Runtime) Addresses(context.Context, []*topology.Component) (map[topology.ID]run.Assigned, error) {
	return nil, nil
}

// Read fails: this machine has no objects of clusters.
func (r *Runtime) Read(
	_ context.Context, c *topology.Component, gvk schema.GroupVersionKind, _, name string,
) (*unstructured.Unstructured, error) {
	return nil, fmt.Errorf("%s: %s %s is on a cluster, and this machine has none", c.ID(), gvk.Kind, name)
}

// Find finds nothing: components on this machine make no objects of a cluster.
func (r *Runtime) Find(context.Context, plan.Ref, string) ([]unstructured.Unstructured, error) {
	return nil, nil
}

// Replace restarts the process of a component, if it has one, and waits until it is ready. No other process serves in the
// meantime.
func (r *Runtime) Replace(ctx context.Context, c *topology.Component) error {
	w, err := r.layout.workloadOf(c)
	if err != nil || w == nil {
		return err
	}
	if restarted, err := r.supervisor.again(ctx, c.ID(), w); err != nil || !restarted {
		return err
	}
	for {
		s, err := r.State(ctx, c)
		switch {
		case err != nil || s.Ready:
			return err
		case s.Stuck:
			return fmt.Errorf("%s is not ready: %s", c.ID(), s.Reason)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(watchPeriod):
		}
	}
}

// Dial connects to the port of a component.
func (r *Runtime) Dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", ports.Address(c.Port))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.ID(), err)
	}
	return conn, nil
}

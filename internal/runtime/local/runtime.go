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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
	"github.com/kcpctl/kcpctl/internal/runtime/local/download"
	"github.com/kcpctl/kcpctl/internal/runtime/local/ports"
)

// parallel is how many processes are started or stopped concurrently.
const parallel = 16

// Options configure a Runtime.
type Options struct {
	// Version is the version of kcpctl, and User the user who runs it. Both are recorded in the history.
	Version, User string
	// Command is the command that is run, without its flags: kcpctl up.
	Command string
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
	// begun is this run, from Begin to Finish.
	begun *record.Run
	// mayHaveChanged is set once Begin has written something.
	mayHaveChanged bool
	// keepsPKI means that the PKI is in a directory outside the state directory.
	keepsPKI bool
	// hostAddress returns an error if kcp would not find an address of this machine.
	hostAddress func() error
}

var _ run.Runtime = (*Runtime)(nil)

// PreflightPurge finds nothing: Purge only deletes files of the state directory.
func (r *Runtime) PreflightPurge(context.Context) error { return nil }

// PurgeScope returns the state directory, if it exists, and the symbolic links in it: Purge deletes no directory of the
// user.
func (r *Runtime) PurgeScope(context.Context) ([]string, error) {
	if _, err := os.Lstat(r.layout.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	scope := []string{"this machine: directory " + r.layout.Dir + ", with all data"}
	err := filepath.WalkDir(r.layout.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSymlink != 0 {
			to, _ := os.Readlink(path)
			scope = append(scope, fmt.Sprintf(
				"the symbolic link %s, but not %s, to which it leads: delete that yourself", path, to))
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	return scope, err
}

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
		supervisor: &supervisor{layout: l, prober: p, now: o.Now, busy: map[string]*sync.Mutex{}},
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

// Begin records the ports, finds or downloads the binaries that the plan needs, and marks the setup as being applied
// until Finish. It does not record the objects: Apply records each one before it has an effect. A run that only
// deletes, and has nothing to record, goes on where the disk is full: it stops processes, and removes their logs.
func (r *Runtime) Begin(ctx context.Context, p *plan.Plan, rec *record.Record) error {
	err := r.begin(ctx, p, rec)
	if !disk.IsFull(err) || slices.ContainsFunc(p.Items, writes) {
		return err
	}
	if stored, readErr := r.Record(ctx); readErr != nil || !stored.Equal(rec) {
		return err // a later run would have to know it
	}
	return nil
}

// writes reports whether a plan writes an item.
func writes(it plan.Item) bool { return it.Action == plan.Create || it.Action == plan.Change }

func (r *Runtime) begin(ctx context.Context, p *plan.Plan, rec *record.Record) error {
	if err := r.layout.ports.Commit(ctx); err != nil {
		return err
	}
	if err := r.fetch(ctx, p); err != nil {
		return err
	}
	r.mayHaveChanged = true
	if err := r.writeRecord(rec); err != nil {
		return err
	}
	if err := r.markDirectories(rec); err != nil {
		return err
	}
	begun := r.self().Run
	r.begun = &begun
	return r.markApplying(begun)
}

// MayHaveChanged reports whether this run may have changed something. Then processes that run may be its own.
func (r *Runtime) MayHaveChanged() bool { return r.mayHaveChanged }

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
	if err := r.addRevision(a); err != nil {
		return err
	}
	r.begun = nil
	return disk.RemoveState(r.layout.path(fileApplying))
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
func (r *Runtime) Purge(ctx context.Context) error {
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
			return clierr.New(clierr.Failed, "run kcpctl down first",
				"%s is still running (pid %d)", all[id].name, live[0].PID)
		}
	}
	if err := r.layout.checkHidden(ctx); err != nil {
		return err
	}
	if err := r.removeDir(); err != nil {
		return explain(err)
	}
	r.layout.ports.RemoveRoot()
	return nil
}

// removeDir removes the state directory. A run that holds the lock keeps its file until it releases it: otherwise
// another run could take the lock, and lose what it writes to the directory.
func (r *Runtime) removeDir() error {
	info, err := os.Lstat(r.layout.Dir)
	if err != nil || !info.IsDir() || !r.supervisor.holdsLock() {
		return os.RemoveAll(r.layout.Dir)
	}
	entries, err := os.ReadDir(r.layout.Dir)
	for _, e := range entries {
		if e.Name() != fileLock {
			err = errors.Join(err, os.RemoveAll(r.layout.path(e.Name())))
		}
	}
	return err
}

// PurgeData deletes the directory of a component, whose process has ended.
func (r *Runtime) PurgeData(_ context.Context, id topology.ID) error {
	object := topology.Object(r.layout.Setup, id.Kind(), id.Name())
	return explain(os.RemoveAll(topology.ComponentDir(r.layout.Dir, object)))
}

// State returns whether the process of a component is running, and its answer to the readiness probe.
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
		s.Version = o.Binary.Version
		s.Restarts = o.Restarts
		s.Since = o.StartedAt
	}
	if !o.alive {
		s.Detail = r.layout.lastLog(c.Object())
		if o.final && !o.stopping() {
			if taken := r.layout.ports.Taken(c.ID()); len(taken) > 0 {
				s.Reason += ": " + strings.Join(taken, "; ")
			}
		}
		return s, nil
	}
	if _, err := r.prober.client(ctx); err != nil {
		s.Unexamined, s.Reason = true, err.Error()
		return s, nil
	}
	if s.Reason = r.prober.unready(ctx, c.Kind, c.Port); s.Reason != "" {
		return s, nil
	}
	w, err := r.layout.workloadOf(c)
	if err != nil {
		return ready.State{}, err
	}
	if w != nil && r.layout.usesOther(w, o.processRecord) {
		s.Stuck = true
		s.Reason = elsewhere + ": run kcpctl backup create before it stops"
	} else {
		s.Ready = true
		s.ReadyReplicas = 1
	}
	return s, nil
}

// watchPeriod is the interval at which Wait checks the processes.
const watchPeriod = 500 * time.Millisecond

// Wait watches the processes until ctx ends, restarts those that crash, and rotates long logs. It fails if a process
// cannot be restarted, or if another run has stopped the setup.
func (r *Runtime) Wait(ctx context.Context) error {
	for {
		for _, c := range r.topology.Components {
			if !c.Runs() {
				continue
			}
			if err := r.watch(ctx, c); err != nil {
				return err
			}
		}
		_ = r.layout.rotateLogs(maxLog) // it must not stop anything, for instance on a full disk
		if poll.Pause(ctx, watchPeriod) != nil {
			return nil
		}
	}
}

// watch restarts a component that has crashed, and fails if it has stopped for good. It holds the lock for that:
// another run that holds it restarts what crashes itself, and what this one would see may be half of a change.
func (r *Runtime) watch(ctx context.Context, c *topology.Component) error {
	o, err := r.supervisor.observe(ctx, c)
	if err != nil || o.alive || o.processRecord != nil && o.Crashes.Waiting(r.options.Now()) {
		return err
	}
	unlock, err := r.lockExisting(ctx)
	switch {
	case clierr.Code(err) == clierr.Conflict:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return clierr.New(clierr.Failed, "if it was moved, move it back; then rerun the command",
			"the state directory %s does not exist any more", r.layout.Dir)
	case err != nil:
		return err
	}
	defer unlock()
	if o, err = r.supervisor.observe(ctx, c); err != nil || !o.final {
		return err
	}
	if all, err := r.layout.workloads(); err != nil || len(all) > 0 && all[c.ID()] == nil {
		return err // another run has removed only this component
	}
	msg := append([]string{string(c.ID()) + " " + o.reason}, r.layout.lastLog(c.Object())...)
	return clierr.New(clierr.Failed, "rerun the command", "%s", strings.Join(msg, "\n    "))
}

// Addresses returns nothing: on this machine every component chooses its address.
func (r *Runtime) Addresses(context.Context, []*topology.Component) (map[topology.ID]run.Assigned, error) {
	return nil, nil
}

// Read fails: this machine has no objects of clusters.
func (r *Runtime) Read(
	_ context.Context, c *topology.Component, gvk schema.GroupVersionKind, _, name string,
) (*unstructured.Unstructured, error) {
	return nil, fmt.Errorf("%s: %s %s is on a cluster, and this machine has none", c.ID(), gvk.Kind, name)
}

// Find returns the applied object with the kind and the name of a reference. Components on this machine make no other
// objects.
func (r *Runtime) Find(_ context.Context, at plan.Ref, _ string) ([]unstructured.Unstructured, error) {
	if at.Name == "" {
		return nil, nil
	}
	e, err := r.layout.entry(at.Kind, at.Name)
	if err != nil || e == nil {
		return nil, err
	}
	return []unstructured.Unstructured{*e.Object}, nil
}

// Scale does nothing: on this machine a component is one process.
func (r *Runtime) Scale(context.Context, *topology.Component, int32) error { return nil }

// Replace restarts the process of a component, if it has one, and waits until it is ready. No other process serves in
// the meantime.
func (r *Runtime) Replace(ctx context.Context, c *topology.Component) error {
	w, err := r.layout.workloadOf(c)
	if err != nil || w == nil {
		return err
	}
	restarted, err := r.supervisor.again(ctx, c.ID(), w, func(ctx context.Context) (*binary, error) {
		need, err := r.needOf(c.ID(), w)
		if err != nil {
			return nil, err
		}
		return r.options.Binaries.get(ctx, need)
	})
	if err != nil || !restarted {
		return err
	}
	return poll.Until(ctx, watchPeriod, nil, func() (string, error) {
		s, err := r.State(ctx, c)
		reason := fmt.Sprintf("%s is not ready: %s", c.ID(), s.Reason)
		switch {
		case err != nil || s.Ready:
			return "", err
		case s.Stuck:
			return "", errors.New(reason)
		}
		return reason, nil
	})
}

// ReplaceOutdated does nothing: on this machine a component is one process.
func (r *Runtime) ReplaceOutdated(context.Context, *topology.Component) error { return nil }

// Dial connects to the port of a component.
func (r *Runtime) Dial(ctx context.Context, c *topology.Component) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", ports.Address(c.Port))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.ID(), err)
	}
	return conn, nil
}

// Unreachable returns none: this machine is always reached.
func (r *Runtime) Unreachable(context.Context) []plan.Unreachable { return nil }

// LeaveOut does nothing: this machine is always reached.
func (r *Runtime) LeaveOut([]plan.Unreachable) {}

// Belong never fails: nothing on this machine is kcp-operator's.
func (r *Runtime) Belong(context.Context, []plan.Item) error { return nil }

// Inherited returns no authorities: nothing on this machine is kcp-operator's.
func (r *Runtime) Inherited(context.Context) (*pki.State, error) { return &pki.State{}, nil }

// InheritedRelease returns none: nothing on this machine is kcp-operator's.
func (r *Runtime) InheritedRelease(context.Context, plan.Item) (string, error) { return "", nil }

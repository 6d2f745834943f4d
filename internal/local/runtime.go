// Package local runs a setup on this machine, without Kubernetes: the same rendered objects, but a Deployment becomes a
// process, what it mounts becomes files of the state directory, and Services become ports of the loopback interface.
package local

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/local/download"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// parallel is how many processes are started or stopped at once.
const parallel = 16

// Options say how a Runtime behaves.
type Options struct {
	// Version is kcpctl's own version, User who runs it. The history names both.
	Version, User string
	// Binaries says where kcp's binaries come from.
	Binaries Binaries
	// Store keeps the PKI. Nil is a folder of the state directory.
	Store pki.Store
	// Now is the clock.
	Now func() time.Time
}

// Runtime runs the components of a setup as processes of this machine. They outlive it.
type Runtime struct {
	topology *topology.Topology
	layout   *Layout
	options  Options

	mu      sync.Mutex
	running map[string]*process
	http    *http.Client
	locked  bool
	// keepsPKI means that the PKI is in a directory of the user's.
	keepsPKI bool
	// hostAddress says why kcp would find no address of this machine.
	hostAddress func() error
}

var _ run.Runtime = (*Runtime)(nil)

// PreflightPurge finds nothing: Purge deletes only files of the user's own.
func (r *Runtime) PreflightPurge(context.Context) error { return nil }

// KeepsPKI reports whether Purge leaves the PKI alone, because it is not in the state directory.
func (r *Runtime) KeepsPKI() bool { return r.keepsPKI }

// New returns the runtime of a topology that was built with the layout. It starts nothing.
func New(t *topology.Topology, l *Layout, o Options) *Runtime {
	o.Binaries.known = &sync.Map{}
	o.Binaries.Source.Progress = oneAtATime(o.Binaries.Source.Progress)
	keepsPKI := o.Store != nil
	if !keepsPKI {
		o.Store = store{pki.DirectoryStore(l.path(dirPKI))}
	}
	return &Runtime{topology: t, layout: l, options: o, running: map[string]*process{}, keepsPKI: keepsPKI, hostAddress: hostAddress}
}

// store is a PKI in the state directory.
type store struct{ pki.Store }

func (s store) Save(ctx context.Context, state *pki.State) error {
	return writeError(s.Store.Save(ctx, state))
}

// oneAtATime lets downloads that go on at once report one after the other.
func oneAtATime(report func(download.Progress)) func(download.Progress) {
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

// Where says where the setup's files are.
func (r *Runtime) Where() string { return "this machine, " + r.layout.Dir }

// Store keeps the setup's PKI.
func (r *Runtime) Store() pki.Store { return r.options.Store }

// Close ends connections, and cuts the logs that have grown too long: nobody else does while the processes run on their
// own. It stops no process.
func (r *Runtime) Close() error {
	r.forgetClient()
	r.layout.ports.release()
	return r.layout.rotateLogs(maxLog)
}

// Record is what the installation on this machine knows of itself.
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
	return writeFile(r.layout.path(fileRecord), raw)
}

// Begin claims the ports, gets the binaries that the plan needs, and marks the setup as being applied until Finish. It need
// not remember the objects: each is remembered on its own, before it has an effect.
func (r *Runtime) Begin(ctx context.Context, p *plan.Plan, rec *record.Record) error {
	if err := r.layout.ports.claim(ctx); err != nil {
		return err
	}
	if err := r.fetch(ctx, p); err != nil {
		return err
	}
	if err := r.writeRecord(rec); err != nil {
		return err
	}
	return writeFile(r.layout.path(fileApplying), nil)
}

// applying tells whether a run has begun and not finished.
func (r *Runtime) applying() bool {
	_, err := os.Stat(r.layout.path(fileApplying))
	return err == nil
}

// Finish deletes what the plan deletes, remembers the record and what was applied, and takes the mark of Begin away.
func (r *Runtime) Finish(ctx context.Context, p *plan.Plan, rec *record.Record, a plan.Applied) error {
	if err := r.Delete(ctx, p.Deletions()); err != nil {
		return err
	}
	if err := r.writeRecord(rec); err != nil {
		return err
	}
	if err := r.remember(ctx, a); err != nil {
		return err
	}
	return removeFile(r.layout.path(fileApplying))
}

func (r *Runtime) remember(ctx context.Context, a plan.Applied) error {
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
	return r.writeHistory(files)
}

func (r *Runtime) writeHistory(files map[string][]byte) error {
	for name, content := range files {
		if err := writeFile(r.layout.path(dirHistory, name), content); err != nil {
			return err
		}
	}
	old, err := os.ReadDir(r.layout.path(dirHistory))
	if err != nil {
		return err
	}
	for _, f := range old {
		if _, ok := files[f.Name()]; !ok {
			if err := removeFile(r.layout.path(dirHistory, f.Name())); err != nil {
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

// Objects returns everything that the setup has applied, by component.
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
		w := all[id]
		if live, _, err := r.layout.locate(w); err != nil || len(live) > 0 {
			return errors.Join(err, clierr.New(clierr.Failed, "run kcpctl down --local first",
				"%s still runs (pid %d)", w.name, live[0].PID))
		}
	}
	if err := os.RemoveAll(r.layout.Dir); err != nil {
		return writeError(err)
	}
	r.layout.removeRoot()
	return nil
}

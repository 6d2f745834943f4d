package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

// processRecord is the record of a component's process.
type processRecord struct {
	// The identity is zero from just before the start until just after it. If kcpctl is killed in between, the process
	// is found by its arguments.
	process.Identity
	// Dir is the state directory at the time of the start.
	Dir string `json:"dir,omitempty"`
	// Hash is the hash of the workload that it runs.
	Hash      string    `json:"hash"`
	Binary    binary    `json:"binary"`
	StartedAt time.Time `json:"startedAt"`
	// Restarts is how often the same workload was restarted.
	Restarts int32 `json:"restarts"`
	// Crashes are the crashes of the workload since a run changed or restarted it.
	Crashes process.Crashes `json:"crashes,omitzero"`
	// Exit is how it ended. Only the run that started it can know.
	Exit *process.Exit `json:"exit,omitempty"`
	// Stopping is set while kcpctl stops it.
	Stopping bool `json:"stopping,omitempty"`
}

// ended describes how a process ended, as far as that is known.
func (rec *processRecord) ended() string {
	how := "not running any more"
	if rec.Exit != nil {
		how = rec.Exit.String()
	}
	if rec.Crashes.GaveUp() {
		how += ", crashed repeatedly"
	}
	return how
}

func (l *Layout) recordFile(name string) string { return l.path(dirProcesses, name+".json") }

// record reads the record of a process. It returns nil if there is none, or if it is a copy: the process belongs to the
// state directory that was copied.
func (l *Layout) record(name string) (*processRecord, error) {
	raw, err := os.ReadFile(l.recordFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rec := &processRecord{}
	if err := json.Unmarshal(raw, rec); err != nil {
		return nil, fmt.Errorf("read %s: %w", l.recordFile(name), err)
	}
	if l.isCopy(name, rec) {
		return nil, nil
	}
	return rec, nil
}

// isCopy reports whether another state directory, in which the process was started, has the same record.
func (l *Layout) isCopy(name string, rec *processRecord) bool {
	if rec.PID == 0 || rec.Dir == "" || rec.Dir == l.Dir {
		return false
	}
	there, errThere := os.Stat(rec.Dir)
	here, errHere := os.Stat(l.Dir)
	if errThere != nil || errHere != nil || os.SameFile(there, here) {
		return false // it was moved, or has two paths
	}
	original, err := (&Layout{Dir: rec.Dir}).record(name)
	return err == nil && original != nil && original.Identity == rec.Identity
}

func (l *Layout) writeRecord(name string, rec *processRecord) error {
	return disk.WriteJSON(l.recordFile(name), rec)
}

// locate returns the live processes of a workload, and the record. There is at most one process, unless a user started
// others. If the record has no PID yet, the one that locate returns has it.
func (l *Layout) locate(w *workload) ([]process.Identity, *processRecord, error) {
	rec, err := l.record(w.name)
	if err != nil {
		return nil, nil, err
	}
	if rec != nil && rec.Alive() {
		return []process.Identity{rec.Identity}, rec, nil
	}
	found, err := process.Find(w.program, w.configDir)
	if err != nil {
		return nil, nil, err
	}
	if len(found) == 1 && rec != nil && rec.PID == 0 {
		rec.Identity = found[0] // not written: only the run that holds the lock writes
	}
	return found, rec, nil
}

// supervisor starts and stops the processes of workloads, and restarts those that crash. It does so only while this run
// holds the lock of the setup: two runs would start two processes.
type supervisor struct {
	layout *Layout
	prober *prober
	now    func() time.Time

	mu     sync.Mutex
	busy   map[string]*sync.Mutex
	locked bool
}

// lock keeps the other goroutines of this run from the process of a workload until unlock is called.
func (s *supervisor) lock(name string) (unlock func()) {
	s.mu.Lock()
	m := s.busy[name]
	if m == nil {
		m = &sync.Mutex{}
		s.busy[name] = m
	}
	s.mu.Unlock()
	m.Lock()
	return m.Unlock
}

// setLocked records whether this run holds the setup's lock.
func (s *supervisor) setLocked(locked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked = locked
}

// holdsLock reports whether this run holds the setup's lock.
func (s *supervisor) holdsLock() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locked
}

// replace stops the process of a workload, if it has one, and starts the next one. The caller has called lock.
func (s *supervisor) replace(ctx context.Context, id topology.ID, w *workload, bin *binary) error {
	next := processRecord{Hash: w.hash, Binary: *bin}
	before, err := s.layout.record(w.name)
	if err == nil && before != nil && before.Hash == w.hash {
		next.Restarts = before.Restarts + 1
	}
	if err := s.stopLocked(ctx, w); err != nil {
		return err
	}
	if before != nil {
		s.layout.ports.WaitFree(ctx, id)
	}
	return s.start(w, next)
}

// again restarts the process of a workload. It does nothing if no run has started one. find finds the binary if another
// file is at its path now.
func (s *supervisor) again(ctx context.Context, id topology.ID, w *workload,
	find func(context.Context) (*binary, error)) (restarted bool, err error) {
	defer s.lock(w.name)()
	rec, err := s.layout.record(w.name)
	if err != nil || rec == nil {
		return false, err
	}
	bin := &rec.Binary
	if !bin.unchanged() { // another release would change the data, and a process that runs is not stopped for nothing
		if bin, err = find(ctx); err != nil {
			return false, fmt.Errorf("restart %s: %w", id, err)
		}
		if bin.Version != rec.Binary.Version {
			return false, clierr.New(clierr.Failed, "run kcpctl up",
				"restart %s: %s, which it runs, is gone, and %s is %s", id, rec.Binary.Version, bin.Path, bin.Version)
		}
	}
	return true, s.replace(ctx, id, w, bin)
}

// start starts a workload. The record is written before and after it, so that the next run finds the process even if
// this one is killed in between.
func (s *supervisor) start(w *workload, rec processRecord) error {
	log, err := s.layout.openLog(w.name)
	if err != nil {
		return err
	}
	defer log.Close()
	rec.Dir, rec.StartedAt = s.layout.Dir, s.now()
	if err := s.layout.writeRecord(w.name, &rec); err != nil {
		return err
	}
	rec.Identity, rec.Exit, err = process.Start(process.Command{
		Path: rec.Binary.Path, Args: w.args, Env: w.processEnv(), Dir: w.dir, Output: log,
	})
	if err != nil {
		return err
	}
	return s.layout.writeRecord(w.name, &rec)
}

const (
	// unreadyGrace is the longest grace period of a process that is not ready: it has no requests to finish. If kcp is
	// told to end while it starts, it would wait up to a minute for its own requests, which can no longer succeed.
	unreadyGrace = 5 * time.Second
	// readyTimeout is how long a process may take to report that it is ready.
	readyTimeout = 2 * time.Second
)

// isReady reports whether the process of a workload is ready.
func (s *supervisor) isReady(ctx context.Context, w *workload) bool {
	e, err := s.layout.entry(kindDeployment, w.name)
	if err != nil || e == nil {
		return false
	}
	port := s.layout.ports.Port(string(e.Component))
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return port != 0 && s.prober.unready(ctx, e.Component.Kind(), port) == ""
}

// stop ends the processes of a workload and removes their record.
func (s *supervisor) stop(ctx context.Context, w *workload) error {
	defer s.lock(w.name)()
	return s.stopLocked(ctx, w)
}

func (s *supervisor) stopLocked(ctx context.Context, w *workload) error {
	live, rec, err := s.layout.locate(w)
	if err != nil {
		return err
	}
	grace := w.grace
	if len(live) > 0 && !s.isReady(ctx, w) {
		grace = min(grace, unreadyGrace)
	}
	if rec != nil && len(live) > 0 {
		rec.Stopping = true // if this run is killed, the next one does not take the end for a crash
		if err := s.layout.writeRecord(w.name, rec); err != nil && !disk.IsFull(err) {
			return err
		}
	}
	var g errgroup.Group
	for _, id := range live {
		g.Go(func() error { return id.Stop(ctx, grace) })
	}
	if err := g.Wait(); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return clierr.New(clierr.Failed, "run kcpctl as that user",
				"%s was started by another user: %w", w.name, err)
		}
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return disk.RemoveState(s.layout.recordFile(w.name))
}

// observation is the state of a component's process.
type observation struct {
	*processRecord
	alive bool
	// reason is why it is not alive; final means that this does not change until the next up.
	reason string
	final  bool
}

// stopping reports whether kcpctl is stopping the process, which still has its ports.
func (o observation) stopping() bool { return o.processRecord != nil && o.Stopping && o.Alive() }

// observe returns the state of a component's process. It restarts a process that crashed if this run holds the setup's
// lock; otherwise it writes nothing.
func (s *supervisor) observe(ctx context.Context, c *topology.Component) (observation, error) {
	defer s.lock(c.Object())()
	rec, err := s.layout.record(c.Object())
	if err != nil {
		return observation{}, err
	}
	switch {
	case rec == nil:
		return observation{reason: "not running", final: true}, nil
	case rec.Alive() && rec.Stopping:
		return observation{processRecord: rec, reason: "stopping", final: true}, nil
	case rec.Alive():
		return observation{processRecord: rec, alive: true}, nil
	}
	mayRestart := s.holdsLock()
	if mayRestart {
		if exit := rec.End(ctx); exit != nil {
			rec.Exit = exit
		}
	}
	o, w, err := s.observeDead(c, rec)
	switch {
	case err != nil || o.alive || !mayRestart:
		return o, err
	case w == nil:
		return o, s.layout.writeRecord(c.Object(), rec)
	}
	return s.restart(ctx, w, rec)
}

// observeDead returns the state of a process that does not have the recorded PID, and the workload to restart. That is
// nil if no run may restart it.
func (s *supervisor) observeDead(c *topology.Component, rec *processRecord) (observation, *workload, error) {
	dead := observation{processRecord: rec, reason: rec.ended(), final: true}
	w, err := s.layout.workloadOf(c)
	if err != nil || w == nil {
		return dead, nil, err
	}
	if live, rec, err := s.layout.locate(w); err != nil || len(live) > 0 && rec != nil && rec.Alive() {
		return observation{processRecord: rec, alive: err == nil}, nil, err
	}
	if isOpen(s.layout.database(c.Object())) {
		dead.reason = hidden
		return dead, nil, nil
	}
	if rec.Stopping {
		return dead, nil, nil
	}
	return dead, w, nil
}

// restart starts a crashed process again when that is due.
func (s *supervisor) restart(ctx context.Context, w *workload, rec *processRecord) (observation, error) {
	now := s.now()
	rec.Crashes.Record(now, now.Sub(rec.StartedAt))
	if err := s.layout.writeRecord(w.name, rec); err != nil {
		return observation{}, err
	}
	dead := observation{processRecord: rec, reason: rec.ended()}
	if rec.Crashes.GaveUp() {
		dead.final = true
		return dead, nil
	}
	if !rec.Binary.unchanged() { // another release would change the data
		dead.reason += fmt.Sprintf("; not restarted, because %s was replaced or removed: run kcpctl up",
			rec.Binary.Path)
		dead.final = true
		return dead, nil
	}
	dead.reason += ", restarting"
	if rec.Crashes.Waiting(now) || ctx.Err() != nil {
		return dead, nil
	}
	next := processRecord{Hash: w.hash, Binary: rec.Binary, Restarts: rec.Restarts + 1, Crashes: rec.Crashes}
	next.Crashes.Restarted()
	return dead, s.start(w, next)
}

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// processRecord is what is known of a component's process.
type processRecord struct {
	// identity is zero from just before the start until just after it: a process that was started by a run that died in
	// between is found by its arguments.
	identity
	// Hash is that of the workload that it runs.
	Hash      string    `json:"hash"`
	Binary    binary    `json:"binary"`
	StartedAt time.Time `json:"startedAt"`
	// Restarts is how often the same workload was started again.
	Restarts int32 `json:"restarts"`
	// Exit is how it ended. Only the run that started it can know.
	Exit *exit `json:"exit,omitempty"`
	// Stopping says that it is meant to end.
	Stopping bool `json:"stopping,omitempty"`
}

// process is a component's process as this run knows it.
type process struct {
	mu sync.Mutex
	// startedAt is when this run started it; zero if it did not.
	startedAt time.Time
	crashes   crashes
}

// process returns what this run knows of a workload's process.
func (r *Runtime) process(name string) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.running[name]
	if p == nil {
		p = &process{}
		r.running[name] = p
	}
	return p
}

func (l *Layout) recordFile(name string) string { return l.path(dirProcesses, name+".json") }

// record reads what is known of a process: nil if nothing is.
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
	return rec, nil
}

func (l *Layout) writeRecord(name string, rec *processRecord) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return writeFile(l.recordFile(name), raw)
}

// locate returns the live processes of a workload, and the record. There is at most one process, unless somebody started
// others by hand. One that has no pid in the record yet is written down.
func (l *Layout) locate(w *workload) ([]identity, *processRecord, error) {
	rec, err := l.record(w.name)
	if err != nil {
		return nil, nil, err
	}
	if rec != nil && rec.alive() {
		return []identity{rec.identity}, rec, nil
	}
	found, err := find(w.program, w.configDir)
	if err != nil {
		return nil, nil, err
	}
	if len(found) == 1 && rec != nil && rec.PID == 0 {
		rec.identity = found[0]
		return found, rec, l.writeRecord(w.name, rec)
	}
	return found, rec, nil
}

// start starts a workload. Whenever this run dies, the next one finds the process.
func (r *Runtime) start(p *process, w *workload, bin *binary, restarts int32) error {
	log, err := r.layout.openLog(w.name)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	if err := inheritNothing(); err != nil {
		return err
	}
	rec := &processRecord{Hash: w.hash, Binary: *bin, StartedAt: r.options.Now(), Restarts: restarts}
	if err := r.layout.writeRecord(w.name, rec); err != nil {
		return err
	}
	proc, err := os.StartProcess(bin.Path, append([]string{bin.Path}, w.args...), &os.ProcAttr{
		Dir: w.dir, Env: w.processEnv(), Files: []*os.File{null, log, log},
		// A session of its own: closing the terminal or Ctrl-C does not reach it.
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return startError(err, bin)
	}
	p.startedAt = rec.StartedAt
	rec.identity, err = identify(proc.Pid)
	if err != nil { // it has ended already
		rec.Exit = reap(proc.Pid)
	}
	return errors.Join(r.layout.writeRecord(w.name, rec), proc.Release())
}

func startError(err error, bin *binary) error {
	hint := ""
	if errors.Is(err, syscall.ENOEXEC) || errors.Is(err, syscall.Errno(86)) { // EBADARCH of macOS
		hint = "is it for another operating system or architecture? Pass another --kcp-bin-dir"
	}
	return clierr.New(clierr.Failed, hint, "start %s: %w", bin.Path, err)
}

// inheritNothing makes sure that no process that we start keeps a file open that our own parent left open, such as a lock
// of a shell script.
func inheritNothing() error {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

const (
	// startingGrace is how long a process may take to end that does not serve: nobody has requests there. kcp would wait for
	// its own, which cannot succeed any more, for up to a minute if it is told to end while it starts.
	startingGrace = 5 * time.Second
	// servesTime is how long a process may take to say that it serves.
	servesTime = 2 * time.Second
)

// serves tells whether the process of a workload is ready.
func (r *Runtime) serves(ctx context.Context, w *workload) bool {
	e, err := r.layout.entry(kindDeployment, w.name)
	if err != nil || e == nil {
		return false
	}
	port, ok := r.layout.ports.Ports[string(e.Component)]
	ctx, cancel := context.WithTimeout(ctx, servesTime)
	defer cancel()
	return ok && r.probe(ctx, port) == ""
}

// stop ends the processes of a workload and forgets them.
func (r *Runtime) stop(ctx context.Context, w *workload) error {
	p := r.process(w.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.stopLocked(ctx, p, w)
}

func (r *Runtime) stopLocked(ctx context.Context, p *process, w *workload) error {
	live, rec, err := r.layout.locate(w)
	if err != nil {
		return err
	}
	grace := w.grace
	if len(live) > 0 && !r.serves(ctx, w) {
		grace = min(grace, startingGrace)
	}
	p.startedAt, p.crashes = time.Time{}, crashes{}
	if rec != nil && len(live) > 0 {
		rec.Stopping = true // for whoever else watches it
		if err := r.layout.writeRecord(w.name, rec); err != nil {
			return err
		}
	}
	var g errgroup.Group
	for _, id := range live {
		g.Go(func() error { return id.stop(ctx, grace) })
	}
	if err := g.Wait(); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return clierr.New(clierr.Failed, "run kcpctl as that user", "%s was started by another user: %w", w.name, err)
		}
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return removeFile(r.layout.recordFile(w.name))
}

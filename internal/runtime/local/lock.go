package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

// holder describes the run that holds the lock. The lock itself is the kernel's, and ends with the process.
type holder struct {
	record.Run
	// Start identifies the process together with its PID. Earlier releases did not write it.
	Start string `json:"start,omitempty"`
}

// self is this run.
func (r *Runtime) self() holder {
	h := holder{Run: record.Run{
		Command: r.options.Command, User: r.options.User, PID: os.Getpid(),
		Since: r.options.Now().UTC().Truncate(time.Second),
	}}
	if id, err := process.Identify(h.PID); err == nil {
		h.Start = id.Start
	}
	return h
}

// runs reports whether the process of the holder still runs.
func (h holder) runs() bool {
	id, err := process.Identify(h.PID)
	return err == nil && (h.Start == "" || h.Start == id.Start)
}

// readHolder returns the run that holds the lock, or nil.
func (l *Layout) readHolder() *holder {
	raw, err := os.ReadFile(l.path(fileLock))
	h := &holder{}
	if err != nil || json.Unmarshal(raw, h) != nil || !h.runs() {
		return nil
	}
	return h
}

// Runs returns the run that holds the lock, and the one that the mark of Begin is of.
func (r *Runtime) Runs(context.Context) (current, unfinished *record.Run, err error) {
	if h := r.layout.readHolder(); h != nil {
		current = &h.Run
	}
	raw, err := os.ReadFile(r.layout.path(fileApplying))
	if errors.Is(err, fs.ErrNotExist) {
		return current, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var mark record.Run
	if err := json.Unmarshal(raw, &mark); err != nil {
		return current, record.Unfinished(nil), nil // earlier releases wrote an empty one
	}
	return current, record.Unfinished(&mark), nil
}

// markApplying marks the setup as being applied by this run.
func (r *Runtime) markApplying(run record.Run) error {
	raw, err := json.Marshal(run)
	if err != nil {
		return err
	}
	return disk.WriteState(r.layout.path(fileApplying), raw)
}

// Ended adds to the mark of Begin why the run has not finished.
func (r *Runtime) Ended(_ context.Context, why error) {
	if r.begun != nil && r.applying() {
		_ = r.markApplying(*r.begun.End(why, r.options.Now()))
	}
}

// Lock keeps other runs from changing the setup until unlock is called or this process ends. It cannot be lost. A state
// directory in which the run leaves nothing is removed.
func (r *Runtime) Lock(ctx context.Context) (held context.Context, unlock func(), err error) {
	if err := r.mayWrite(ctx); err != nil {
		return nil, nil, err
	}
	for range lockAttempts {
		if err := os.MkdirAll(r.layout.Dir, 0o700); err != nil {
			return nil, nil, explain(err)
		}
		unlock, err = r.lockExisting(ctx)
		// Another run that has created the directory, and written nothing, may just have removed it.
		again := clierr.Code(err) == clierr.Conflict || errors.Is(err, fs.ErrNotExist)
		if !again || poll.Pause(ctx, lockPause) != nil {
			break
		}
	}
	return ctx, unlock, err
}

// Lock waits a moment for a run in the foreground, which holds the lock while it restarts a process.
const (
	lockAttempts = 10
	lockPause    = 100 * time.Millisecond
)

// lockExisting is Lock for a setup that was started. It fails with fs.ErrNotExist if the state directory does not
// exist.
func (r *Runtime) lockExisting(ctx context.Context) (unlock func(), err error) {
	f, err := filelock.Open(r.layout.path(fileLock), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, r.layout.lockedError()
	}
	if err != nil {
		return nil, explain(err)
	}
	err = r.describe(f)
	if err == nil {
		err = r.mayWrite(ctx) // another run may have written the record before this one got the lock
	}
	if err == nil {
		err = r.layout.checkHidden(ctx)
	}
	if err == nil {
		err = r.supervisor.checkElsewhere(ctx)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	r.supervisor.setLocked(true)
	return func() {
		r.supervisor.setLocked(false)
		_ = os.Remove(f.Name())
		_ = f.Close()
		disk.RemoveEmpty(r.layout.Dir)
		r.layout.ports.RemoveRoot()
	}, nil
}

// describe writes into the lock file which run holds the lock. Only readers need it, so a full disk, on which kcp must
// still be stopped, does not matter.
func (r *Runtime) describe(f *os.File) error {
	raw, err := json.Marshal(r.self())
	if err == nil {
		_, err = f.WriteAt(raw, 0)
	}
	if err == nil {
		err = f.Truncate(int64(len(raw))) // of a run that was killed, more may be left
	}
	if err == nil || disk.IsFull(err) {
		return nil
	}
	return explain(fmt.Errorf("write %s: %w", f.Name(), err))
}

// End waits until no other run changes the setup. Then it stops all processes, and with purge removes everything.
// Without the state directory, it fails if processes of the setup run: it was moved or deleted under them.
func (r *Runtime) End(ctx context.Context, purge bool) error {
	unlock, err := r.lockExisting(ctx)
	for clierr.Code(err) == clierr.Conflict && poll.Pause(ctx, watchPeriod) == nil {
		unlock, err = r.lockExisting(ctx)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return r.Moved()
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.StopAll(ctx); err != nil || !purge {
		return err
	}
	return r.Purge(ctx)
}

func (l *Layout) lockedError() error {
	who := "another kcpctl"
	if h := l.readHolder(); h != nil {
		who = fmt.Sprintf("another kcpctl (pid %d, since %s)", h.PID, h.Since.Format(time.RFC3339))
	}
	return clierr.New(clierr.Conflict, "wait until it has ended, then rerun the command",
		"%s is changing the setup %s", who, l.Setup)
}

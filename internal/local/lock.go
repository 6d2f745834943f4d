package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// holder is who holds a lock, for whoever finds it held. The lock itself is the kernel's and ends with its process.
type holder struct {
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

// Lock keeps other runs out until unlock is called or this process ends: it cannot be lost.
func (r *Runtime) Lock(ctx context.Context) (held context.Context, unlock func(), err error) {
	if err := os.MkdirAll(r.layout.Dir, 0o700); err != nil {
		return nil, nil, writeError(err)
	}
	f, err := r.openLock()
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(holder{PID: os.Getpid(), Since: r.options.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(raw, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, writeError(fmt.Errorf("write %s: %w", f.Name(), err))
	}
	r.setLocked(true)
	return ctx, func() {
		r.setLocked(false)
		_ = os.Remove(f.Name())
		_ = f.Close()
	}, nil
}

func (r *Runtime) setLocked(locked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locked = locked
}

// isLocked tells whether this run keeps others out.
func (r *Runtime) isLocked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.locked
}

// openLock opens and locks the lock file. A file that was removed meanwhile locks nothing, so it tries again.
func (r *Runtime) openLock() (*os.File, error) {
	path := r.layout.path(fileLock)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, writeError(err)
		}
		if err := lockFile(f); err != nil {
			defer f.Close()
			return nil, r.lockedError(f, err)
		}
		if isThere(f) {
			return f, nil
		}
		_ = f.Close()
	}
}

// isThere tells whether an open file is still the one of its name.
func isThere(f *os.File) bool {
	mine, errMine := f.Stat()
	there, errThere := os.Stat(f.Name())
	return errMine == nil && errThere == nil && os.SameFile(mine, there)
}

func (r *Runtime) lockedError(f *os.File, err error) error {
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	who := "another kcpctl"
	var h holder
	if raw, err := os.ReadFile(f.Name()); err == nil && json.Unmarshal(raw, &h) == nil {
		who = fmt.Sprintf("another kcpctl (pid %d, since %s)", h.PID, h.Since.Format(time.RFC3339))
	}
	return clierr.New(clierr.Conflict, "wait until it has ended, then run the same command again",
		"%s is changing the setup %s", who, r.layout.Setup)
}

// lockFile takes the kernel's lock on a file, which ends when the file is closed or its process dies. It does not wait.
func lockFile(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

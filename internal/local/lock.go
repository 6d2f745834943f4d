package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/filelock"
)

// holder describes the process that holds the lock. The lock itself is the kernel's, and ends with the process.
type holder struct {
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

// Lock keeps other runs from changing the setup until unlock is called or this process ends. It cannot be lost.
func (r *Runtime) Lock(ctx context.Context) (held context.Context, unlock func(), err error) {
	if err := os.MkdirAll(r.layout.Dir, 0o700); err != nil {
		return nil, nil, explain(err)
	}
	f, err := filelock.Open(r.layout.path(fileLock), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, nil, r.layout.lockedError()
	}
	if err != nil {
		return nil, nil, explain(err)
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
		return nil, nil, explain(fmt.Errorf("write %s: %w", f.Name(), err))
	}
	r.supervisor.setLocked(true)
	return ctx, func() {
		r.supervisor.setLocked(false)
		_ = os.Remove(f.Name())
		_ = f.Close()
	}, nil
}

func (l *Layout) lockedError() error {
	who := "another kcpctl"
	var h holder
	if raw, err := os.ReadFile(l.path(fileLock)); err == nil && json.Unmarshal(raw, &h) == nil {
		who = fmt.Sprintf("another kcpctl (pid %d, since %s)", h.PID, h.Since.Format(time.RFC3339))
	}
	return clierr.New(clierr.Conflict, "wait until it has ended, then rerun the command",
		"%s is changing the setup %s", who, l.Setup)
}

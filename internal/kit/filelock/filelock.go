// Package filelock locks files and directories with the kernel's advisory lock (flock), and files on Windows with
// LockFileEx. A lock ends when the file is closed or its process dies, so it is never stale. Go opens files with
// O_CLOEXEC: processes started meanwhile do not inherit a lock.
package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrHeld means that another open file has the lock.
var ErrHeld = errors.New("locked by another process")

const pollInterval = 20 * time.Millisecond

// Try locks an open file, and fails with ErrHeld instead of waiting. Closing the file unlocks it.
func Try(f *os.File) error {
	return explain(f, lock(f, false))
}

// Lock locks an open file. It waits until no other process has the lock.
func Lock(f *os.File) error { return explain(f, lock(f, true)) }

func explain(f *os.File, err error) error {
	if err == nil || errors.Is(err, ErrHeld) {
		return err
	}
	return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
}

// Open opens and locks a file, with a flag and a mode as for os.OpenFile. It fails with ErrHeld instead of waiting. The
// lock of a file that was removed or replaced in the meantime protects nothing, so Open then starts again.
func Open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flag, mode)
		if err != nil {
			return nil, err
		}
		err = Try(f)
		if err == nil && isCurrent(f) {
			return f, nil
		}
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// Wait calls open until it does not fail with ErrHeld, or ctx ends.
func Wait(ctx context.Context, open func() (*os.File, error)) (f *os.File, err error) {
	waitErr := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		f, err = open()
		return !errors.Is(err, ErrHeld), nil
	})
	if waitErr != nil {
		return nil, context.Cause(ctx)
	}
	return f, err
}

// isCurrent reports whether the path of an open file still leads to it.
func isCurrent(f *os.File) bool {
	opened, openedErr := f.Stat()
	current, currentErr := os.Stat(f.Name())
	return openedErr == nil && currentErr == nil && os.SameFile(opened, current)
}

// Package filelock locks files and directories with the kernel's advisory lock (flock). A lock ends when the file is
// closed or its process dies, so it is never stale. Go opens files with O_CLOEXEC: processes started meanwhile do not
// inherit a lock.
package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrHeld means that another open file has the lock.
var ErrHeld = errors.New("locked by another process")

const pollInterval = 20 * time.Millisecond

// Try locks an open file, and fails with ErrHeld instead of waiting. Closing the file unlocks it.
func Try(f *os.File) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrHeld
		case err != nil:
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		return nil
	}
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

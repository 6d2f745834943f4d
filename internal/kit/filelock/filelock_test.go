package filelock

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func open(path string) (*os.File, error) { return Open(path, os.O_RDWR|os.O_CREATE, 0o600) }

func TestOnlyOneHoldsALock(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{"file": filepath.Join(dir, "lock"), "directory": dir} {
		t.Run(name, func(t *testing.T) {
			flag := os.O_RDWR | os.O_CREATE
			if path == dir {
				flag = os.O_RDONLY
			}
			first, err := Open(path, flag, 0o600)
			require.NoError(t, err)
			_, err = Open(path, flag, 0o600)
			require.ErrorIs(t, err, ErrHeld)
			require.NoError(t, first.Close())
			second, err := Open(path, flag, 0o600)
			require.NoError(t, err)
			require.NoError(t, second.Close())
		})
	}
	_, err := Open(filepath.Join(dir, "no", "file"), os.O_RDONLY, 0)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := open(path)
	require.NoError(t, err)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Wait(cancelled, func() (*os.File, error) { return open(path) })
	require.ErrorIs(t, err, context.Canceled)

	time.AfterFunc(2*pollInterval, func() { _ = first.Close() })
	second, err := Wait(t.Context(), func() (*os.File, error) { return open(path) })
	require.NoError(t, err)
	require.NoError(t, second.Close())
}

// A file that was removed while its lock was waited for locks nothing any more.
func TestRemovedFileIsNotLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := open(path)
	require.NoError(t, err)
	require.True(t, isCurrent(first))
	require.NoError(t, os.Remove(path))
	require.False(t, isCurrent(first))
	second, err := open(path)
	require.NoError(t, err)
	require.False(t, isCurrent(first), "another file has its name")
	require.True(t, isCurrent(second))
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
}

func TestProcessesDoNotInheritLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := open(path)
	require.NoError(t, err)
	child := exec.Command("sleep", "1000")
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	require.NoError(t, f.Close())
	f, err = open(path)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

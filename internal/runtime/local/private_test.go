//go:build unix

package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func privateDir(t *testing.T, runtimeDir string) (string, func()) {
	t.Helper()
	dir, remove, err := PrivateDir(func(key string) string { return map[string]string{"XDG_RUNTIME_DIR": runtimeDir}[key] })
	require.NoError(t, err)
	t.Cleanup(remove)
	return dir, remove
}

func TestPrivateDirIsInTheRuntimeDirectory(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	own, open := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(own, 0o700))
	require.NoError(t, os.Chmod(open, 0o755))
	file := filepath.Join(tmp, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, tc := range map[string]struct{ runtimeDir, want string }{
		"ours":           {own, own},
		"not set":        {"", tmp},
		"relative":       {"run", tmp},
		"missing":        {filepath.Join(own, "missing"), tmp},
		"a file":         {file, tmp},
		"open to others": {open, tmp},
	} {
		t.Run(name, func(t *testing.T) {
			dir, remove := privateDir(t, tc.runtimeDir)
			require.Equal(t, tc.want, filepath.Dir(dir))
			require.Contains(t, filepath.Base(dir), fmt.Sprintf("kcpctl-%d-", os.Getpid()))
			info, err := os.Stat(dir)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
			remove()
			require.NoDirExists(t, dir)
		})
	}
}

func TestPrivateDirRemovesThoseOfDeadProcesses(t *testing.T) {
	base, tmp := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(base, 0o700))
	t.Setenv("TMPDIR", tmp)
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	dead := ended.Process.Pid
	put := func(parent string, pid int, files ...string) string {
		dir, err := os.MkdirTemp(parent, fmt.Sprintf("kcpctl-%d-*", pid))
		require.NoError(t, err)
		for _, f := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
		}
		return dir
	}
	alive, _ := privateDir(t, base)
	gone := []string{
		put(base, dead, privateLock, "kubeconfig"),
		put(tmp, dead, privateLock, "kubeconfig"),         // made without a runtime directory
		put(base, os.Getpid(), privateLock, "kubeconfig"), // another process has its pid now
		put(base, dead, newPrivateLock), put(base, dead),  // killed before it took the lock
	}
	keep := []string{alive, put(base, os.Getpid())} // about to take the lock
	// A user has made these.
	notes := []string{put(base, dead, "kubeconfig"), put(base, dead, privateLock, "notes")}
	shared := put(base, dead)
	require.NoError(t, os.Chmod(shared, 0o755))
	keep = append(append(keep, notes...), shared)
	other := filepath.Join(base, "kcpctl-notes-1")
	require.NoError(t, os.Mkdir(other, 0o700))
	elsewhere := put(t.TempDir(), dead, privateLock)
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(base, fmt.Sprintf("kcpctl-%d-1", dead))))
	foreign := put(base, dead, privateLock)
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(foreign, 12345, 12345))
		keep = append(keep, foreign)
	}

	privateDir(t, base)
	for _, dir := range gone {
		require.NoDirExists(t, dir)
	}
	for _, dir := range append(keep, other, elsewhere) {
		require.DirExists(t, dir)
	}
	require.FileExists(t, filepath.Join(notes[0], "kubeconfig"))
	require.FileExists(t, filepath.Join(notes[1], "notes"))
}

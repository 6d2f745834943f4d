package archive_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/engine/backup/archive"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
)

// A killed backup leaves its stage, with snapshots that are not encrypted. The next one removes it, and not the stage
// of a backup that runs, or one that is being created.
func TestAbandonedStagesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	target, err := archive.Open(dir, os.Getenv)
	require.NoError(t, err)
	running, err := archive.NewStage(target)
	require.NoError(t, err)
	killed, created := filepath.Join(dir, ".kcpctl-staging-1"), filepath.Join(dir, ".kcpctl-staging-2")
	for _, d := range []string{killed, created} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	lock, err := filelock.Open(filepath.Join(killed, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	require.NoError(t, lock.Close(), "as the end of a process does")
	require.NoError(t, os.WriteFile(filepath.Join(killed, "root.db"), []byte("secret"), 0o600))

	next, err := archive.NewScratch(target)
	require.NoError(t, err)
	require.NoDirExists(t, killed)
	for _, d := range []string{created, running.Dir, next.Dir} {
		require.DirExists(t, d)
		require.Equal(t, dir, filepath.Dir(d))
	}
	next.Remove()
	running.Remove()
	require.NoDirExists(t, next.Dir)
	require.NoDirExists(t, running.Dir)
}

package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/etcd/datadir"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// A restore that continues leaves what an interrupted one has placed.
func TestPlaceInAgain(t *testing.T) {
	dir := datadir.Directory{Path: filepath.Join(t.TempDir(), "etcd"), Mark: markDirectory}
	place := func(content string) []string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "db")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		out, err := placeIn(dir, run.Restored{File: file, Suffix: "before"})
		require.NoError(t, err)
		return out.Aside
	}
	require.Empty(t, place("present"))
	require.Equal(t, []string{dir.Path + ".before"}, place("restored"))
	id, _, err := readVolume(dir.Path)
	require.NoError(t, err)
	require.Empty(t, place("restored"))
	again, _, err := readVolume(dir.Path)
	require.NoError(t, err)
	require.Equal(t, id, again)
	_, err = placeIn(dir, run.Restored{File: filepath.Join(t.TempDir(), "none"), Suffix: "before"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

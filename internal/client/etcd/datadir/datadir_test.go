package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const suffix = "before-20261126T000000Z"

// write returns a function that creates a file.
func write(content string) func(path string) error {
	return func(path string) error { return os.WriteFile(path, []byte(content), 0o600) }
}

// held returns the contents of the databases below a volume, by the names of their data directories.
func held(t *testing.T, volume string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(volume)
	require.NoError(t, err)
	for _, e := range entries {
		if raw, err := os.ReadFile(filepath.Join(volume, e.Name(), databaseFile)); err == nil {
			out[e.Name()] = string(raw)
		}
	}
	return out
}

func TestPlace(t *testing.T) {
	volume := t.TempDir()
	d := Directory{Path: filepath.Join(volume, "etcd")}
	aside, err := d.Place(suffix, write("first"))
	require.NoError(t, err)
	require.Empty(t, aside)
	require.Equal(t, map[string]string{"etcd": "first"}, held(t, volume))

	for n, want := range []string{"etcd." + suffix, "etcd." + suffix + "-2"} {
		aside, err = d.Place(suffix, write("next"))
		require.NoError(t, err, n)
		require.Equal(t, filepath.Join(volume, want), aside)
	}
	require.Equal(t, map[string]string{"etcd": "next", "etcd." + suffix: "first", "etcd." + suffix + "-2": "next"}, held(t, volume))

	aside, err = d.SetAside("other")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(volume, "etcd.other"), aside)
	aside, err = d.SetAside("other")
	require.NoError(t, err)
	require.Empty(t, aside)
}

// Wherever a process is killed, the directory never holds a part, the previous data exists, and the next call completes.
func TestPlaceIsKilled(t *testing.T) {
	killed := errors.New("killed")
	for _, at := range []string{"clear", "create", "write", "mark", "sync", "move aside", "rename"} {
		t.Run(at, func(t *testing.T) {
			volume := t.TempDir()
			d := Directory{Path: filepath.Join(volume, "etcd"), Mark: func(dir string) error { return os.WriteFile(filepath.Join(dir, "id"), []byte("1"), 0o600) }}
			_, err := d.Place("earlier", write("old"))
			require.NoError(t, err)

			d.step = func(name string) error {
				if name == at {
					return killed
				}
				return nil
			}
			_, err = d.Place(suffix, write("new"))
			require.ErrorIs(t, err, killed)
			now := held(t, volume)
			require.Contains(t, []string{now["etcd"], now["etcd."+suffix]}, "old", "the previous data is kept")
			require.Contains(t, []string{"", "old", "new"}, now["etcd"])

			d.step = nil
			_, err = d.Place(suffix, write("new"))
			require.NoError(t, err)
			now = held(t, volume)
			require.Equal(t, map[string]string{"etcd": "new", "etcd." + suffix: "old"}, now)
			require.FileExists(t, filepath.Join(volume, "etcd", "id"))
		})
	}
}

// A failed write leaves nothing that fills the disk, and the previous data.
func TestPlaceFails(t *testing.T) {
	volume := t.TempDir()
	d := Directory{Path: filepath.Join(volume, "etcd")}
	_, err := d.Place(suffix, write("old"))
	require.NoError(t, err)
	full := errors.New("no space left on device")
	_, err = d.Place(suffix, func(path string) error { return errors.Join(write("ne")(path), full) })
	require.ErrorIs(t, err, full)
	entries, err := os.ReadDir(volume)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, map[string]string{"etcd": "old"}, held(t, volume))
}

func TestHolds(t *testing.T) {
	d := Directory{Path: filepath.Join(t.TempDir(), "etcd")}
	const content = "database"
	digest, err := Digest(strings.NewReader(content))
	require.NoError(t, err)
	holds := func(size int, digest string) bool {
		t.Helper()
		ok, err := d.Holds(int64(size), digest)
		require.NoError(t, err)
		return ok
	}
	require.False(t, holds(len(content), digest), "there is no directory")
	_, err = d.Place(suffix, write(content))
	require.NoError(t, err)
	require.True(t, holds(len(content), digest))
	require.False(t, holds(len(content)+1, digest))
	require.False(t, holds(len(content), strings.Repeat("0", len(digest))))
	require.NoError(t, os.Mkdir(filepath.Join(d.Path, logDir), 0o700))
	require.False(t, holds(len(content), digest), "an etcd has started with it")
}

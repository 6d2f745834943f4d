package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestWriteReplaces(t *testing.T) {
	for name, old := range map[string]func(t *testing.T, path string){
		"nothing":          func(*testing.T, string) {},
		"an open file":     func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, []byte("old"), 0o644)) },
		"a dangling link":  func(t *testing.T, path string) { require.NoError(t, os.Symlink("nowhere", path)) },
		"a link to a file": func(t *testing.T, path string) { require.NoError(t, os.Symlink("other", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
			require.NoError(t, os.WriteFile(other, []byte("other"), 0o644))
			old(t, path)
			require.NoError(t, Write(path, []byte("new"), 0o600))
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, "new", string(got))
			info, err := os.Lstat(path)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), info.Mode(), "a regular file that only its owner reads")
			got, err = os.ReadFile(other)
			require.NoError(t, err)
			require.Equal(t, "other", string(got), "no link is followed")
			require.Equal(t, []string{"file", "other"}, names(t, dir))
		})
	}
}

func TestWriteKeepsTheOldFileWhenItFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	broken := errors.New("broken")
	err := WriteFrom(path, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), 0o600)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, path)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
	require.Equal(t, []string{"file"}, names(t, dir), "no temporary file is left")

	require.ErrorContains(t, Write(dir, nil, 0o600), "not a regular file")
	require.Error(t, Write(filepath.Join(path, "below"), nil, 0o600))
	require.ErrorIs(t, Write(filepath.Join(dir, "no", "file"), nil, 0o600), fs.ErrNotExist)
}

// Concurrent writers of one file do not write into each other's temporary files.
func TestWriteAtTheSameTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := Write(path, []byte(strings.Repeat(string(rune('a'+i)), 1<<16)), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat(string(got[:1]), 1<<16), string(got))
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

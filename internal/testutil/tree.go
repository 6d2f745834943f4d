package testutil

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// GoldenTree compares files, by their path, with those below testdata/<dir> of the package under test: neither may have
// one that the other has not. With -update it writes them.
func GoldenTree(t testing.TB, dir string, got map[string]string) {
	t.Helper()
	root := filepath.Join("testdata", filepath.FromSlash(dir))
	if *update {
		require.NoError(t, os.RemoveAll(root))
	} else {
		var have []string
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(root, path)
			have = append(have, rel)
			return err
		}))
		slices.Sort(have)
		require.Equal(t, have, slices.Sorted(maps.Keys(got)), "the files of %s; accept with -update", root)
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		Golden(t, filepath.Join(dir, name), []byte(got[name]))
	}
}

// Package testutil has what tests of several packages share: golden files, assertions of errors, and a clock.
package testutil

import (
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// update is the flag of `go test -update`. It is a variable because flags are registered before tests start.
var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// Golden compares got with testdata/<name> of the package under test. With -update it writes the file.
func Golden(t testing.TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "create it with: go test -run '^%s$' -update", t.Name())
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got, accept with -update):\n%s", path, diff)
	}
}

// GoldenTree compares files, by path, with all files below testdata/<dir> of the package under test. A missing or an
// extra file fails the test. With -update it replaces the directory.
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

// Start returns the initial time of a Clock.
func Start() time.Time { return time.Date(2026, 11, 20, 17, 45, 12, 0, time.UTC) }

// Clock is a clock that only Advance moves.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows Start.
func NewClock() *Clock { return &Clock{now: Start()} }

// Now returns the time of the clock. Tests use it instead of time.Now.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward and returns its new time.
func (c *Clock) Advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

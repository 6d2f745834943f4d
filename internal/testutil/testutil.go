// Package testutil is what tests of several packages share: golden files and a clock that stands still.
package testutil

import (
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// update is `go test ./... -update`. A flag has to be registered before the tests start, hence a variable.
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
	require.NoError(t, err, "make it with: go test -run '^%s$' -update", t.Name())
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got, accept with -update):\n%s", path, diff)
	}
}

// Start is the time at which a new Clock stands.
func Start() time.Time { return time.Date(2026, 11, 20, 17, 45, 12, 0, time.UTC) }

// Clock is a clock that moves only when it is told to.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at Start.
func NewClock() *Clock { return &Clock{now: Start()} }

// Now is the clock's time; it stands in for time.Now.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on and returns its new time.
func (c *Clock) Advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

package testutil

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recorder is a test that notes its failure instead of failing.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestGolden(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("testdata", 0o755))
	require.NoError(t, os.WriteFile(filepath.Join("testdata", "a.txt"), []byte("a\n"), 0o644))
	for name, tc := range map[string]struct {
		got    string
		failed bool
	}{
		"same":  {got: "a\n"},
		"other": {got: "b\n", failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			Golden(r, "a.txt", []byte(tc.got))
			require.Equal(t, tc.failed, r.failed)
		})
	}
}

func TestClockStandsStill(t *testing.T) {
	c := NewClock()
	require.Equal(t, c.Now(), c.Now())
	require.Equal(t, Start().Add(time.Minute), c.Advance(time.Minute))
	require.Equal(t, Start().Add(time.Minute), c.Now())
}

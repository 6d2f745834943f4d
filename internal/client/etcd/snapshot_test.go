package etcd_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil/etcdfile"
)

func TestSnapshot(t *testing.T) {
	e, c, s := world(t)
	sent := etcdfile.Snapshot(t, etcdfile.Version{Key: "/registry/a", Value: "b"})
	e.SetSnapshot(sent, 0)
	var got bytes.Buffer
	begun, last := 0, int64(0)
	err := client(t, e, c, s, c.ClientHost()).Snapshot(t.Context(), &got, func() { begun++ }, func(done, total int64) {
		require.Greater(t, done, last)
		require.Equal(t, int64(len(sent)), total)
		last = done
	})
	require.NoError(t, err)
	require.Equal(t, 1, begun)
	require.Equal(t, int64(len(sent)), last)
	require.True(t, bytes.Equal(sent, got.Bytes()))
}

// What ends early, or was changed on the way, is not a snapshot.
func TestSnapshotIsComplete(t *testing.T) {
	sent := etcdfile.Snapshot(t, etcdfile.Version{Key: "/registry/a", Value: "b"})
	flipped := bytes.Clone(sent)
	flipped[len(sent)/2] ^= 1
	for name, tc := range map[string]struct {
		raw    []byte
		breaks int
		err    string
	}{
		"the member stops":  {sent, 4 << 10, "etcdserver: server stopped"},
		"a part is missing": {sent[:len(sent)-100], 0, "its SHA-256 differs"},
		"a bit is flipped":  {flipped, 0, "its SHA-256 differs"},
		"nothing":           {nil, 0, "its SHA-256 differs"},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, s := world(t)
			e.SetSnapshot(tc.raw, tc.breaks)
			var got bytes.Buffer
			err := client(t, e, c, s, c.ClientHost()).Snapshot(t.Context(), &got, func() {}, func(int64, int64) {})
			require.ErrorContains(t, err, tc.err)
		})
	}
}

func TestSnapshotEndsIfItCannotBeWritten(t *testing.T) {
	e, c, s := world(t)
	e.SetSnapshot(etcdfile.Snapshot(t, etcdfile.Version{Key: "/registry/a", Value: "b"}), 0)
	full := errors.New("no space left on device")
	err := client(t, e, c, s, c.ClientHost()).Snapshot(t.Context(), failing{full}, func() {}, func(int64, int64) {})
	require.ErrorIs(t, err, full)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

package transfer

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/etcd/datadir"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

const suffix = "before-20260101T000000Z"

// fixture is a volume, and a server that has it.
type fixture struct {
	t         *testing.T
	directory string
	client    *Client
	// cut, if it is positive, is after how many bytes the next connection breaks.
	cut atomic.Int64
}

func newFixture(t *testing.T, d datadir.Directory) *fixture {
	t.Helper()
	f := &fixture{t: t, directory: filepath.Join(t.TempDir(), "etcd")}
	d.Path = f.directory
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &Server{Directory: d, Log: func(m string) { t.Log(m) }}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	f.client = &Client{Volume: "PersistentVolumeClaim/kcp/data", Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		return &cutting{Conn: conn, f: f}, err
	}}
	return f
}

// cutting is a connection that breaks.
type cutting struct {
	net.Conn
	f       *fixture
	written int64
}

func (c *cutting) Write(p []byte) (int, error) {
	if limit := c.f.cut.Load(); limit > 0 && c.written+int64(len(p)) > limit {
		c.f.cut.Store(0)
		_ = c.Close()
		return 0, io.ErrClosedPipe
	}
	n, err := c.Conn.Write(p)
	c.written += int64(n)
	return n, err
}

func (f *fixture) file(content string) string {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "db")
	require.NoError(f.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func (f *fixture) place(content string) (string, error) {
	f.t.Helper()
	return f.client.Place(f.t.Context(), f.file(content), suffix, func(int64, int64) {})
}

func (f *fixture) requireHeld(content string) {
	f.t.Helper()
	raw, err := os.ReadFile(filepath.Join(f.directory, "member", "snap", "db"))
	require.NoError(f.t, err)
	require.True(f.t, content == string(raw), "another database")
	entries, err := os.ReadDir(filepath.Dir(f.directory))
	require.NoError(f.t, err)
	for _, e := range entries {
		require.NotEqual(f.t, "etcd.restoring", e.Name())
	}
}

func TestTransfer(t *testing.T) {
	f := newFixture(t, datadir.Directory{})
	large := strings.Repeat("0123456789abcdef", 1<<16)
	var reported []int64
	aside, err := f.client.Place(t.Context(), f.file(large), suffix, func(done, total int64) {
		require.Equal(t, int64(len(large)), total)
		reported = append(reported, done)
	})
	require.NoError(t, err)
	require.Empty(t, aside)
	require.NotEmpty(t, reported)
	f.requireHeld(large)

	aside, err = f.place("next")
	require.NoError(t, err)
	require.Equal(t, f.directory+"."+suffix, aside)
	f.requireHeld("next")

	aside, err = f.place("next")
	require.NoError(t, err)
	require.Empty(t, aside, "it is there already: an interrupted restore has placed it")

	aside, err = f.client.SetAside(t.Context(), "other")
	require.NoError(t, err)
	require.Equal(t, f.directory+".other", aside)
	aside, err = f.client.SetAside(t.Context(), "other")
	require.NoError(t, err)
	require.Empty(t, aside)
}

// A transfer that breaks is repeated, and its part never becomes the data.
func TestTransferBreaks(t *testing.T) {
	f := newFixture(t, datadir.Directory{})
	_, err := f.place("old")
	require.NoError(t, err)
	large := strings.Repeat("0123456789abcdef", 1<<16)
	f.cut.Store(1 << 19)
	aside, err := f.place(large)
	require.NoError(t, err)
	require.Zero(t, f.cut.Load(), "the connection was not cut")
	require.Equal(t, f.directory+"."+suffix, aside)
	f.requireHeld(large)
}

// A database that is not the one that was sent is refused.
func TestTransferOfAnotherDatabase(t *testing.T) {
	f := newFixture(t, datadir.Directory{})
	_, err := f.place("old")
	require.NoError(t, err)
	r, err := request(t.Context(), http.MethodPut, pathDatabase, suffix, strings.NewReader("new"))
	require.NoError(t, err)
	r.Header.Set(headerDigest, strings.Repeat("0", 64))
	resp, err := f.client.http().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.Contains(t, string(raw), "the SHA-256 of the database differs")
	f.requireHeld("old")
}

// What the disk says reaches the user, with a next step, and the previous data is kept.
func TestTransferToABrokenVolume(t *testing.T) {
	for name, tc := range map[string]struct {
		err  syscall.Errno
		hint string
	}{
		"full":      {syscall.ENOSPC, "expand the volume, or delete data on it that earlier restores have moved aside"},
		"read-only": {syscall.EROFS, "rerun the command"},
	} {
		t.Run(name, func(t *testing.T) {
			fails := false
			f := newFixture(t, datadir.Directory{Mark: func(dir string) error {
				if fails {
					return &fs.PathError{Op: "write", Path: dir, Err: tc.err}
				}
				return nil
			}})
			_, err := f.place("old")
			require.NoError(t, err)
			fails = true
			_, err = f.place("new")
			require.ErrorContains(t, err, fmt.Sprintf("write to PersistentVolumeClaim/kcp/data: write %s.restoring: %v; the previous data is kept", f.directory, tc.err))
			require.Contains(t, clierr.Hint(err), tc.hint)
			f.requireHeld("old")
		})
	}
}

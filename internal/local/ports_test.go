package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

func TestPorts(t *testing.T) {
	all := []string{"cache-server", "root-shard", "root-shard/etcd-client", "front-proxy/main", "front-proxy/other"}
	for name, tc := range map[string]struct {
		base   int32
		own    string // ports.json of the setup
		others string // of another one
		taken  []int32
		want   []int32
	}{
		"the front-proxy is where clients expect it":  {want: []int32{6444, 6445, 6446, 6443, 6447}},
		"ports that somebody listens on are left out": {taken: []int32{6445}, want: []int32{6444, 6446, 6447, 6443, 6448}},
		"a taken base moves the block":                {taken: []int32{6443}, want: []int32{6544, 6545, 6546, 6543, 6547}},
		"another setup's block is left alone": {
			others: `{"base":6443,"ports":{"front-proxy/main":6443}}`, want: []int32{6544, 6545, 6546, 6543, 6547},
		},
		"a large neighbour": {
			others: `{"base":6443,"ports":{"a":6543,"b":6644}}`, want: []int32{6645, 6646, 6647, 6643, 6648},
		},
		"the base of the flag": {base: 7000, want: []int32{7001, 7002, 7003, 7000, 7004}},
		"ports are kept, even if they are taken": {
			own:   `{"base":6443,"ports":{"cache-server":6449,"front-proxy/main":6443}}`,
			taken: []int32{6443, 6449}, want: []int32{6449, 6444, 6445, 6443, 6446},
		},
		"the flag moves them": {
			base: 7000, own: `{"base":6443,"ports":{"cache-server":6449}}`, want: []int32{7001, 7002, 7003, 7000, 7004},
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			for setup, content := range map[string]string{"demo": tc.own, "other": tc.others} {
				if content != "" {
					require.NoError(t, writeFile(filepath.Join(state, setup, filePorts), []byte(content)))
				}
			}
			free := func(port int32) bool { return !contains(tc.taken, port) }
			p, err := loadPorts(filepath.Join(state, "demo"), tc.base, free)
			require.NoError(t, err)
			var got []int32
			for _, name := range all {
				got = append(got, p.of(name))
			}
			require.Empty(t, cmp.Diff(tc.want, got))

			require.NoError(t, p.claim(t.Context()))
			again, err := loadPorts(filepath.Join(state, "demo"), 0, func(int32) bool { return false })
			require.NoError(t, err)
			for i, name := range all {
				require.Equal(t, got[i], again.of(name), "kept")
			}
			require.Equal(t, []namedPort{{"root-shard", got[1]}, {"root-shard/etcd-client", got[2]}}, again.ofComponent(topology.ID("root-shard")))
		})
	}
}

func contains(ports []int32, port int32) bool {
	for _, p := range ports {
		if p == port {
			return true
		}
	}
	return false
}

func TestPortsAreClaimedOnce(t *testing.T) {
	state := t.TempDir()
	claim := func(setup string) error {
		require.NoError(t, os.MkdirAll(filepath.Join(state, setup), 0o700))
		p, err := loadPorts(filepath.Join(state, setup), 7000, func(int32) bool { return true })
		require.NoError(t, err)
		p.others = nil // as if the other setup had not been there yet
		p.of("front-proxy/main")
		return p.claim(t.Context())
	}
	require.NoError(t, claim("a"))
	err := claim("b")
	require.ErrorContains(t, err, "port 7000, meant for front-proxy/main, belongs to the setup a")
	require.Equal(t, clierr.Conflict, clierr.Code(err))
	require.NoFileExists(t, filepath.Join(state, "b", filePorts))
}

// Of two setups that have no ports yet the second chooses when the first has claimed its own.
func TestSetupsChoosePortsOneAfterAnother(t *testing.T) {
	state := t.TempDir()
	layout := func(setup string) *Layout {
		l, err := NewLayout(state, setup, 0)
		require.NoError(t, err)
		l.ports.free = func(int32) bool { return true }
		return l
	}
	a, b := layout("a"), layout("b")
	require.NoError(t, a.ChoosePorts(t.Context(), 0))
	chosen := make(chan error, 1)
	go func() { chosen <- b.ChoosePorts(t.Context(), 0) }()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, layout("c").ChoosePorts(cancelled, 0), context.Canceled, "nobody else chooses, and Ctrl-C ends the wait")

	first := a.Topology().Port("front-proxy/main")
	require.NoError(t, a.ports.claim(t.Context()))
	require.NoError(t, <-chosen)
	second := b.Topology().Port("front-proxy/main")
	require.NotEqual(t, first, second)
	require.NoError(t, a.ChoosePorts(cancelled, 0), "it has its ports, and need not wait for who chooses")
	require.Equal(t, first, a.Topology().Port("front-proxy/main"))
	require.NoError(t, b.ports.claim(t.Context()))
}

func TestClosedRuntimeLetsOthersChoose(t *testing.T) {
	state := t.TempDir()
	l, err := NewLayout(state, "a", 0)
	require.NoError(t, err)
	require.NoError(t, l.ChoosePorts(t.Context(), 0))
	f, err := os.Open(state)
	require.NoError(t, err)
	defer f.Close()
	require.ErrorIs(t, lockFile(f), syscall.EWOULDBLOCK)
	require.NoError(t, New(nil, l, Options{}).Close())
	require.NoError(t, lockFile(f))
	require.NoDirExists(t, state, "nothing was claimed, nothing is left")
}

// The state folder is not removed under somebody who is about to use it.
func TestRootIsKeptForWhoChooses(t *testing.T) {
	state := filepath.Join(t.TempDir(), "kcpctl")
	l, err := NewLayout(state, "a", 0)
	require.NoError(t, err)
	require.NoError(t, l.ChoosePorts(t.Context(), 0))
	other := &Layout{Setup: "b", Dir: filepath.Join(state, "b")}
	other.removeRoot()
	require.DirExists(t, state)
	require.NoError(t, l.ports.claim(t.Context()))
	other.removeRoot()
	require.DirExists(t, state, "there is a setup")
	require.NoError(t, os.RemoveAll(l.Dir))
	other.removeRoot()
	require.NoDirExists(t, state)
	other.removeRoot()
}

func TestMachineWithoutADefaultRoute(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	s.rt.hostAddress = func() error { return errors.New("no default routes found") }
	err := s.preflight()
	require.ErrorContains(t, err, "kcp does not start on a machine without a default route: no default routes found")
	require.Contains(t, clierr.Hint(err), "it need not lead anywhere")
	require.NoError(t, s.rt.HostAddress(t.Context(), nil), "nothing is started")
}

func TestUserFolders(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want Folders
		err  string
	}{
		"home":          {env: map[string]string{"HOME": "/h"}, want: Folders{"/h/.local/state/kcpctl", "/h/.cache/kcpctl"}},
		"XDG":           {env: map[string]string{"XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "/c"}, want: Folders{"/s/kcpctl", "/c/kcpctl"}},
		"relative":      {env: map[string]string{"HOME": "/h", "XDG_STATE_HOME": "s"}, want: Folders{"/h/.local/state/kcpctl", "/h/.cache/kcpctl"}},
		"nothing":       {err: "$HOME is not set"},
		"only one path": {env: map[string]string{"XDG_STATE_HOME": "/s"}, want: Folders{State: "/s/kcpctl"}, err: "$HOME is not set"},
		"relative home": {env: map[string]string{"HOME": "h"}, err: "$HOME is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			got := UserFolders(func(key string) string { return tc.env[key] })
			err := got.Demand()
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.Equal(t, tc.want, got)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestAnotherUsersSetupIsRefused(t *testing.T) {
	l := &Layout{Setup: "demo", Dir: t.TempDir()}
	require.NoError(t, l.checkOwner(os.Geteuid()))
	err := l.checkOwner(os.Geteuid() + 1)
	require.ErrorContains(t, err, "setup demo on this machine belongs to user ")
	require.Contains(t, clierr.Hint(err), "XDG_STATE_HOME")
}

func TestWriteErrorsSayWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		err  syscall.Errno
		hint string
	}{
		"disk full": {syscall.ENOSPC, "free some space"},
		"read-only": {syscall.EROFS, "that you can write to"},
		"forbidden": {syscall.EACCES, "that you can write to"},
		"other":     {syscall.EIO, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := writeError(&os.PathError{Op: "write", Path: "/state/x", Err: tc.err})
			require.ErrorIs(t, err, tc.err)
			require.ErrorContains(t, err, "/state/x")
			require.Contains(t, clierr.Hint(err), tc.hint)
			require.Equal(t, tc.hint == "", clierr.Hint(err) == "")
		})
	}
}

func TestWriteFileReplacesAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, writeFile(path, []byte("old")))
	reader, err := os.Open(path)
	require.NoError(t, err)
	defer reader.Close()
	require.NoError(t, writeFile(path, []byte("new")))
	old := make([]byte, 3)
	_, err = reader.Read(old)
	require.NoError(t, err)
	require.Equal(t, "old", string(old), "who reads the old file goes on reading it")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestFullDiskWhileThePKIIsSaved(t *testing.T) {
	l := &Layout{Setup: "demo", Dir: t.TempDir()}
	r := New(nil, l, Options{})
	require.NoError(t, os.WriteFile(l.path(dirPKI), nil, 0o600)) // in the way
	require.Error(t, r.Store().Save(t.Context(), &pki.State{ServiceAccount: pki.ServiceAccount{Key: []byte("x")}}))

	r = New(nil, l, Options{Store: fullStore{}})
	require.Equal(t, fullStore{}, r.Store(), "a store of one's own is used as it is")
	err := store{fullStore{}}.Save(t.Context(), nil)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Contains(t, clierr.Hint(err), "free some space")
}

// fullStore is on a full disk.
type fullStore struct{ pki.Store }

func (fullStore) Save(context.Context, *pki.State) error {
	return &os.PathError{Op: "write", Path: "ca", Err: syscall.ENOSPC}
}

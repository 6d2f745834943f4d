package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestMachineWithoutADefaultRoute(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	s.rt.hostAddress = func() error { return errors.New("no default routes found") }
	err := s.preflight()
	require.ErrorContains(t, err, "kcp does not start on a machine without a default route: no default routes found")
	require.Contains(t, clierr.Hint(err), "which need not lead anywhere")
	require.NoError(t, s.rt.HostAddress(t.Context(), nil), "nothing is started")
}

func TestUserDirs(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want Dirs
		err  string
	}{
		"home":          {env: map[string]string{"HOME": "/h"}, want: Dirs{"/h/.local/state/kcpctl", "/h/.cache/kcpctl"}},
		"XDG":           {env: map[string]string{"XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "/c"}, want: Dirs{"/s/kcpctl", "/c/kcpctl"}},
		"relative":      {env: map[string]string{"HOME": "/h", "XDG_STATE_HOME": "s"}, want: Dirs{"/h/.local/state/kcpctl", "/h/.cache/kcpctl"}},
		"nothing":       {err: "$HOME is not set"},
		"only one path": {env: map[string]string{"XDG_STATE_HOME": "/s"}, want: Dirs{State: "/s/kcpctl"}, err: "$HOME is not set"},
		"relative home": {env: map[string]string{"HOME": "h"}, err: "$HOME is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			got := UserDirs(func(key string) string { return tc.env[key] })
			err := got.Validate()
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

func TestNoSetupIsOnWindows(t *testing.T) {
	err := Dirs{State: "/state", Cache: "/cache"}.validate("windows")
	require.ErrorContains(t, err, "kcp has no servers for Windows")
	require.Contains(t, clierr.Hint(err), "WSL")
}

func TestAnotherUsersSetupIsRefused(t *testing.T) {
	l := &Layout{Setup: "demo", Dir: t.TempDir()}
	require.NoError(t, l.checkOwner(os.Geteuid()))
	err := l.checkOwner(os.Geteuid() + 1)
	require.ErrorContains(t, err, "setup demo on this machine belongs to user ")
	require.Contains(t, clierr.Hint(err), "XDG_STATE_HOME")
}

func TestFullDiskWhileThePKIIsSaved(t *testing.T) {
	l := &Layout{Setup: "demo", Dir: t.TempDir()}
	r := New(nil, l, Options{})
	require.NoError(t, os.WriteFile(l.path(dirPKI), nil, 0o600)) // in the way
	require.Error(t, r.Store().Save(t.Context(), &pki.State{ServiceAccount: pki.ServiceAccount{Key: []byte("x")}}))

	r = New(nil, l, Options{Store: fullStore{}})
	require.Equal(t, fullStore{}, r.Store(), "a user's store is used as it is")
	err := store{fullStore{}}.Save(t.Context(), nil)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Contains(t, clierr.Hint(err), "free some space")
}

// fullStore is on a full disk.
type fullStore struct{ pki.Store }

func (fullStore) Save(context.Context, *pki.State) error {
	return &os.PathError{Op: "write", Path: "ca", Err: syscall.ENOSPC}
}

// A command that only shows a setup does not use the network, and shows the ports that up would choose. A command that
// starts one does not choose ports on which something listens.
func TestPortsAreReservedOnlyForWhatIsStarted(t *testing.T) {
	state := filepath.Join(t.TempDir(), "kcpctl")
	f, err := setup.Parse("kcp.yaml", []byte(file()))
	require.NoError(t, err)
	l, err := NewLayout(state, "demo", 0)
	require.NoError(t, err)
	asked := map[int32]bool{}
	l.ports.Free = func(port int32) bool { asked[port] = true; return port != 6443 }
	l.ports.Listening = func(int32) bool { t.Error("it looks at ports"); return true }
	top, err := l.Topology(f.Setup)
	require.NoError(t, err)
	require.EqualValues(t, 6443, top.Component("front-proxy/main").Port)
	require.Empty(t, asked)
	require.NoDirExists(t, state)

	require.NoError(t, l.ReservePorts(t.Context(), f.Setup))
	top, err = l.Topology(f.Setup)
	require.NoError(t, err)
	require.EqualValues(t, 6543, top.Component("front-proxy/main").Port)
	require.Len(t, asked, 1+len(topology.PortNames(f.Setup)))
	require.NoError(t, New(top, l, Options{}).Close())
	require.NoDirExists(t, state, "nothing was recorded, nothing is left")
}

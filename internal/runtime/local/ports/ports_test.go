package ports

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
)

var names = []string{"cache-server", "root-shard", "root-shard/etcd-client", "front-proxy/main", "front-proxy/other"}

// load returns the ports of a setup, on a machine on which these ports are taken.
func load(t *testing.T, state, setup string, base int32, taken ...int32) *Set {
	t.Helper()
	s, err := Load(filepath.Join(state, setup), base)
	require.NoError(t, err)
	s.Free = func(port int32) bool { return !slices.Contains(taken, port) }
	return s
}

// assigned returns the ports of names, in their order.
func assigned(t *testing.T, s *Set) []int32 {
	t.Helper()
	all, err := s.Assign(names)
	require.NoError(t, err)
	var out []int32
	for _, name := range names {
		out = append(out, all[name])
	}
	return out
}

func TestReserve(t *testing.T) {
	for name, tc := range map[string]struct {
		base   int32
		own    string // ports.json of the setup
		others string // of another one
		taken  []int32
		want   []int32
		// view are the ports that are shown; the same as want if empty.
		view []int32
	}{
		"the front-proxy has the usual port": {want: []int32{6444, 6445, 6446, 6443, 6447}},
		"taken ports are skipped": {
			taken: []int32{6445}, want: []int32{6444, 6446, 6447, 6443, 6448}, view: []int32{6444, 6445, 6446, 6443, 6447},
		},
		"a taken base moves the block": {
			taken: []int32{6443}, want: []int32{6544, 6545, 6546, 6543, 6547}, view: []int32{6444, 6445, 6446, 6443, 6447},
		},
		"another setup's block is skipped": {
			others: `{"base":6443,"ports":{"front-proxy/main":6443}}`, want: []int32{6544, 6545, 6546, 6543, 6547},
		},
		"another setup with many ports": {
			others: `{"base":6443,"ports":{"a":6543,"b":6644}}`, want: []int32{6645, 6646, 6647, 6643, 6648},
		},
		"the base of the flag": {base: 7000, want: []int32{7001, 7002, 7003, 7000, 7004}},
		"recorded ports are kept, even if they are taken": {
			own:   `{"base":6443,"ports":{"cache-server":6449,"front-proxy/main":6443}}`,
			taken: []int32{6443, 6449}, want: []int32{6449, 6444, 6445, 6443, 6446},
		},
		"the flag moves recorded ports": {
			base: 7000, own: `{"base":6443,"ports":{"cache-server":6449}}`, want: []int32{7001, 7002, 7003, 7000, 7004},
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			for setup, content := range map[string]string{"demo": tc.own, "other": tc.others} {
				if content != "" {
					require.NoError(t, disk.WriteState(filepath.Join(state, setup, File), []byte(content)))
				}
			}
			s := load(t, state, "demo", tc.base, tc.taken...)
			if tc.view == nil {
				tc.view = tc.want
			}
			require.Equal(t, tc.view, assigned(t, s))
			require.NoError(t, s.Reserve(t.Context(), names))
			require.Equal(t, tc.want, assigned(t, s))
			require.NoError(t, s.Commit(t.Context()))

			again := load(t, state, "demo", 0)
			again.Free = func(int32) bool { t.Error("recorded ports are not checked"); return false }
			require.NoError(t, again.Reserve(t.Context(), names))
			require.Nil(t, again.lock, "nothing is to be chosen")
			require.Equal(t, tc.want, assigned(t, again), "they are kept")
			require.Equal(t, []string{"root-shard", "root-shard/etcd-client"}, again.namesOf(topology.ID("root-shard")))
		})
	}
}

// A port that another process takes after it was chosen is lost, unless it cannot change any more.
func TestLost(t *testing.T) {
	for name, tc := range map[string]struct {
		base  int32
		own   string
		taken int32
		want  bool
	}{
		"a chosen port":    {taken: 6445, want: true},
		"the chosen base":  {taken: 6443, want: true},
		"another port":     {taken: 7000},
		"of the flag":      {base: 7000, taken: 7000},
		"a recorded port":  {own: `{"base":6443,"ports":{"cache-server":6449}}`, taken: 6449},
		"beside recorded":  {own: `{"base":6443,"ports":{"cache-server":6449}}`, taken: 6444, want: true},
		"nothing is taken": {},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			if tc.own != "" {
				require.NoError(t, disk.WriteState(filepath.Join(state, "demo", File), []byte(tc.own)))
			}
			s := load(t, state, "demo", tc.base)
			s.Listening = func(port int32) bool { return port == tc.taken }
			require.False(t, s.Lost(), "nothing is reserved")
			require.NoError(t, s.Reserve(t.Context(), names))
			require.Equal(t, tc.want, s.Lost())
			if tc.want {
				s.Release()
				s.Free = func(port int32) bool { return port != tc.taken }
				require.NoError(t, s.Reserve(t.Context(), names))
				require.False(t, s.Lost(), "others are chosen")
			}
			require.NoError(t, s.Commit(t.Context()))
			require.False(t, s.Lost(), "recorded ports do not change")
		})
	}
}

func TestNoPortIsLeft(t *testing.T) {
	s := load(t, t.TempDir(), "demo", lastPort-1)
	_, err := s.Assign(names)
	require.ErrorContains(t, err, "no free port from 65534")
	require.Contains(t, clierr.Hint(err), "--base-port")

	s = load(t, t.TempDir(), "demo", 0)
	s.Free = func(int32) bool { return false }
	require.ErrorContains(t, s.Reserve(t.Context(), names), "no free block of ports")
	require.Nil(t, s.lock)
}

// Ports that were not reserved can have become another setup's.
func TestPortsAreRecordedOnce(t *testing.T) {
	state := t.TempDir()
	a, b := load(t, state, "a", 7000), load(t, state, "b", 7000)
	assigned(t, a)
	assigned(t, b)
	require.NoError(t, a.Commit(t.Context()))
	err := b.Commit(t.Context())
	require.ErrorContains(t, err, "belongs to the setup a")
	require.Equal(t, clierr.Conflict, clierr.Code(err))
	require.NoFileExists(t, filepath.Join(state, "b", File))
}

// Ports that the user has chosen do not change when the command is run again.
func TestBaseOfAnotherSetup(t *testing.T) {
	state := t.TempDir()
	a, b := load(t, state, "a", 0), load(t, state, "b", 6443)
	assigned(t, a)
	require.NoError(t, a.Commit(t.Context()))
	assigned(t, b)
	err := b.Commit(t.Context())
	require.ErrorContains(t, err, "belongs to the setup a")
	require.Equal(t, "choose another --base-port, or omit it", clierr.Hint(err))
}

// The ports of a copy never change, so another run would not help.
func TestACopyOfTheStateDirectory(t *testing.T) {
	state := t.TempDir()
	s := load(t, state, "demo", 0)
	assigned(t, s)
	require.NoError(t, s.Commit(t.Context()))
	backup := filepath.Join(state, "demo.bak")
	require.NoError(t, os.CopyFS(backup, os.DirFS(filepath.Join(state, "demo"))))
	s = load(t, state, "demo", 0)
	assigned(t, s)
	err := s.Commit(t.Context())
	require.ErrorContains(t, err, "is recorded for the setup demo.bak, too: one of "+filepath.Join(state, "demo")+" and "+backup+
		" is a copy of the other")
	require.Equal(t, "move the copy to a directory outside "+state+", and rerun the command", clierr.Hint(err))
	require.NoError(t, os.Rename(backup, filepath.Join(t.TempDir(), "backup")))
	require.NoError(t, s.Commit(t.Context()))
}

// Of two setups that have no ports yet the second chooses when the first has recorded its own.
func TestSetupsChoosePortsOneAfterAnother(t *testing.T) {
	state := t.TempDir()
	a, b := load(t, state, "a", 0), load(t, state, "b", 0)
	require.NoError(t, a.Reserve(t.Context(), names))
	reserved := make(chan error, 1)
	go func() { reserved <- b.Reserve(t.Context(), names) }()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, load(t, state, "c", 0).Reserve(cancelled, names), context.Canceled, "no other setup chooses, and Ctrl-C ends the wait")

	first := assigned(t, a)
	require.NoError(t, a.Commit(t.Context()))
	require.NoError(t, <-reserved)
	require.NotEqual(t, first, assigned(t, b))
	require.NoError(t, a.Reserve(cancelled, names), "it has its ports, and need not wait")
	require.Equal(t, first, assigned(t, a))
	require.NoError(t, b.Commit(t.Context()))
}

// A component that is added to a setup that is running gets its ports under the same lock.
func TestNewComponentsReserveTheirPorts(t *testing.T) {
	state := t.TempDir()
	s := load(t, state, "demo", 0)
	require.NoError(t, s.Reserve(t.Context(), names))
	require.NoError(t, s.Commit(t.Context()))
	before := assigned(t, s)

	s = load(t, state, "demo", 0, 6448)
	require.NoError(t, s.Reserve(t.Context(), append([]string{"shard/alpha"}, names...)))
	require.NotNil(t, s.lock)
	require.EqualValues(t, 6449, s.Port("shard/alpha"))
	require.Zero(t, load(t, state, "demo", 0).Port("shard/alpha"))
	require.Equal(t, before, assigned(t, s))
	s.Release()
	require.Zero(t, load(t, state, "demo", 0).Port("shard/alpha"), "nothing was recorded")
}

func TestReleaseLetsOthersChoose(t *testing.T) {
	state := filepath.Join(t.TempDir(), "kcpctl")
	s := load(t, state, "a", 0)
	require.NoError(t, s.Reserve(t.Context(), names))
	_, err := filelock.Open(state, os.O_RDONLY, 0)
	require.ErrorIs(t, err, filelock.ErrHeld)
	s.Release()
	s.Release()
	require.NoDirExists(t, state, "nothing was recorded, nothing is left")
}

// The directory of all setups is not removed while a setup is about to use it.
func TestRootIsKeptWhilePortsAreChosen(t *testing.T) {
	state := filepath.Join(t.TempDir(), "kcpctl")
	s, other := load(t, state, "a", 0), load(t, state, "b", 0)
	require.NoError(t, s.Reserve(t.Context(), names))
	other.RemoveRoot()
	require.DirExists(t, state)
	require.NoError(t, s.Commit(t.Context()))
	other.RemoveRoot()
	require.DirExists(t, state, "it has a setup")
	require.NoError(t, os.RemoveAll(filepath.Join(state, "a")))
	other.RemoveRoot()
	require.NoDirExists(t, state)
	other.RemoveRoot()
}

func TestListening(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		port := int32(l.Addr().(*net.TCPAddr).Port)
		require.True(t, Listening(port), host)
		require.False(t, Free(port), host)
		require.NoError(t, l.Close())
		require.False(t, Listening(port), host)
		require.True(t, Free(port), host)
	}
}

// The file of an existing installation stays valid.
func TestFileOfAnEarlierVersion(t *testing.T) {
	state := t.TempDir()
	content := "{\n  \"base\": 6443,\n  \"ports\": {\n    \"front-proxy/main\": 6443,\n    \"root-shard\": 6444\n  }\n}"
	path := filepath.Join(state, "demo", File)
	require.NoError(t, disk.WriteState(path, []byte(content)))
	before, err := os.Stat(path)
	require.NoError(t, err)
	s := load(t, state, "demo", 0)
	require.NoError(t, s.Reserve(t.Context(), []string{"root-shard", "front-proxy/main"}))
	require.NoError(t, s.Commit(t.Context()))
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "it is not written again")
}

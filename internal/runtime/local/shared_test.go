package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/filelock"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

// openDatabase opens the database of alpha as its etcd does, and returns what closes it.
func openDatabase(t *testing.T, l *Layout) (closed func()) {
	t.Helper()
	path := l.database(alpha)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	f, err := filelock.Open(path, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return func() {
		require.NoError(t, os.Remove(path)) // the fake does not open it
		require.NoError(t, f.Close())
	}
}

// A state directory that was moved to another disk while kcp runs has a copy of its database. The process has the data.
func TestDataOfAProcessThatWasMoved(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	openDatabase(t, m.layout())
	m.open(file()).lock()()

	path := m.layout().database(alpha)
	require.NoError(t, os.WriteFile(path+".copy", nil, 0o600))
	require.NoError(t, os.Rename(path+".copy", path))
	s := m.open(file())
	_, _, err := s.rt.Lock(t.Context())
	require.EqualError(t, err, "shard/alpha: "+elsewhere+", and "+path+" is older; nothing was changed")
	pid := m.pids()[alpha]
	require.Contains(t, clierr.Hint(err), fmt.Sprintf("then stop it with kill %d", pid))
	st, err := s.rt.State(t.Context(), s.t.Component("shard/alpha"))
	require.NoError(t, err)
	require.Contains(t, st.Reason, elsewhere)
	require.Error(t, s.rt.End(t.Context(), false))

	kill(t, pid)
	m.open(file()).lock()()
	require.NoError(t, os.Remove(path))
}

// A process in another container has its data in the same directory: it is neither replaced, nor is its data deleted.
func TestDataOfAHiddenProcess(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	closed := openDatabase(t, m.layout())
	s := m.open(file())
	_, unlock, err := s.rt.Lock(t.Context())
	require.NoError(t, err, "it is the process of alpha")
	unlock()

	m.stopAll() // now it is another one
	_, _, err = m.open(file()).rt.Lock(t.Context())
	require.ErrorContains(t, err, "a process that kcpctl cannot see has the database "+m.layout().database(alpha)+" open")
	require.Equal(t, clierr.Failed, clierr.Code(err))
	require.Error(t, m.open(file()).rt.Purge(t.Context()))
	require.FileExists(t, m.layout().database(alpha))
	st, err := m.open(file()).rt.State(t.Context(), s.t.Component("shard/alpha"))
	require.NoError(t, err)
	require.Contains(t, st.Reason, hidden)

	time.AfterFunc(200*time.Millisecond, closed) // the kernel closes the files of a process that was killed
	m.up(file())
}

// The processes that the records in a copy of the state directory name are those of the original.
func TestACopyStopsNothingOfTheOriginal(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	pids := m.pids()
	elsewhere := *m
	elsewhere.state = filepath.Join(t.TempDir(), "kcpctl")
	require.NoError(t, exec.Command("cp", "-a", m.state, elsewhere.state).Run())
	s := elsewhere.open(file())
	st, err := s.rt.State(t.Context(), s.t.Component("shard/alpha"))
	require.NoError(t, err)
	require.Contains(t, st.Reason, "not running")
	require.NoError(t, s.rt.StopAll(t.Context()))
	elsewhere.down(file())
	require.NoError(t, s.rt.Purge(t.Context()))
	require.NoDirExists(t, elsewhere.layout().Dir)
	require.Equal(t, pids, m.pids())

	// A directory that was moved is not a copy.
	moved := *m
	moved.state = filepath.Join(t.TempDir(), "kcpctl")
	require.NoError(t, os.Rename(m.state, moved.state))
	require.Equal(t, pids, moved.pids())
	require.NoError(t, moved.open(file()).rt.StopAll(t.Context()))
	for name, pid := range pids {
		_, err := process.Identify(pid)
		require.Error(t, err, name)
	}
}

// Another run may change a setup that is watched. What it starts and removes is watched from then on.
func TestWaitGoesOnAfterAnotherRun(t *testing.T) {
	m := newMachine(t)
	before := file("  - name: beta")
	s := m.open(before)
	s.apply()
	for _, c := range s.t.Components {
		s.await(c.ID(), func(st ready.State) bool { return st.Ready })
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- s.rt.Wait(ctx) }()
	goesOn := func() {
		t.Helper()
		select {
		case err := <-ended:
			require.Fail(t, "it has ended", err)
		case <-time.After(3 * watchPeriod):
		}
	}

	m.clock.Advance(time.Hour)
	other := m.open(file()) // without beta
	_, unlock, err := other.rt.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, other.rt.StopAll(t.Context()))
	goesOn()
	p := other.plan()
	require.NoError(t, other.rt.Begin(t.Context(), p, &record.Record{}))
	for _, c := range other.t.Components {
		require.NoError(t, other.rt.Apply(t.Context(), p.Of(c.ID()), run.PlanOptions{}))
	}
	require.NoError(t, other.rt.Finish(t.Context(), p, &record.Record{}, plan.Applied{Setup: []byte("setup")}))
	unlock()
	goesOn()

	pid := m.pids()[proxy] // of the other run
	kill(t, pid)
	require.Eventually(t, func() bool {
		m.clock.Advance(process.FastExit)
		rec, err := m.layout().record(proxy)
		return err == nil && rec.PID != pid && rec.Alive()
	}, patience, pollInterval)

	m.down(file())
	require.ErrorContains(t, <-ended, "not running")
}

// A purge has the lock until all is gone: what another run wrote meanwhile would be lost.
func TestPurgeKeepsItsLock(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	m.stopAll()
	s := m.open(file())
	unlock := s.lock()
	require.NoError(t, s.rt.Purge(t.Context()))
	other := m.open(file()).rt
	_, _, err := other.Lock(t.Context())
	require.ErrorContains(t, err, "is changing the setup demo")
	require.NoFileExists(t, m.layout().path("ports.json"))
	unlock()
	require.NoDirExists(t, m.state)
}

// The end of a run in the foreground waits for another run, and stops nothing under it.
func TestEndWaitsForAnotherRun(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	_, unlock, err := m.open(file()).rt.Lock(t.Context())
	require.NoError(t, err)
	s := m.open(file())
	short, cancel := context.WithTimeout(t.Context(), 2*watchPeriod)
	defer cancel()
	require.ErrorContains(t, s.rt.End(short, true), "is changing the setup demo")
	require.Len(t, m.pids(), 4)
	time.AfterFunc(watchPeriod, unlock)
	require.NoError(t, s.rt.End(t.Context(), true))
	require.NoDirExists(t, m.layout().Dir)
	require.NoError(t, s.rt.End(t.Context(), true))
	require.NoDirExists(t, m.state)
}

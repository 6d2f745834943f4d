package local

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/diff"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

const (
	alpha = "demo-shard-alpha"
	proxy = "demo-front-proxy-main"
)

func TestSecondUpChangesNothing(t *testing.T) {
	m := newMachine(t)
	p := m.up(file())
	require.Equal(t, len(p.Items), p.Count(plan.Create))
	pids := m.pids()
	require.Len(t, pids, 4)

	require.Empty(t, changed(m.up(file())))
	require.Equal(t, pids, m.pids(), "no process was restarted")
}

// An interrupted run may leave nothing to change, and still has to be finished.
func TestInterruptedRunMakesThePlanStale(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	s := m.open(file())
	p := s.plan()
	require.True(t, p.Empty())
	require.NoError(t, s.rt.Begin(t.Context(), p, &record.Record{}))

	p = m.open(file()).plan()
	require.True(t, p.Stale)
	require.False(t, p.Empty())
	require.NoError(t, s.rt.Finish(t.Context(), p, &record.Record{}, plan.Applied{Setup: []byte(file())}))
	require.True(t, m.open(file()).plan().Empty())
}

func TestUpRestartsOnlyWhatMustBe(t *testing.T) {
	for name, tc := range map[string]struct {
		disturb func(t *testing.T, m *machine)
		file    string
		want    []string
		status  string
	}{
		"a process was killed": {
			disturb: func(t *testing.T, m *machine) {
				pid := m.pids()[alpha]
				kill(t, pid)
				require.Eventually(t, func() bool { return process.Reap(pid) != nil }, patience, pollInterval)
			},
			file: file(), want: []string{"change process/" + alpha}, status: "not running any more",
		},
		"a file was changed": {
			disturb: func(t *testing.T, m *machine) {
				require.NoError(t, os.WriteFile(m.layout().path("components", alpha, "config/ca/server.crt"), []byte("oops"), 0o600))
			},
			file: file(), want: []string{"change process/" + alpha}, status: "ca/server.crt was changed",
		},
		"the record is lost": {
			disturb: func(t *testing.T, m *machine) { require.NoError(t, os.Remove(m.layout().recordFile(alpha))) },
			file:    file(), want: []string{"change process/" + alpha}, status: "running without a record",
		},
		"an argument changed": {
			disturb: func(*testing.T, *machine) {},
			file:    file(`    extraArgs: ["--v=5"]`), want: []string{"change process/" + alpha},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.up(file())
			before := m.pids()
			tc.disturb(t, m)
			p := m.up(tc.file)
			require.Equal(t, tc.want, changed(p))
			if tc.status != "" {
				it := p.Of("shard/alpha")[0]
				shown := diff.Objects(it.Live.Object, it.Merged.Object)
				require.Len(t, shown, 1)
				require.Contains(t, shown[0].Before, tc.status)
			}
			after := m.pids()
			require.NotEqual(t, before[alpha], after[alpha])
			delete(before, alpha)
			delete(after, alpha)
			require.Equal(t, before, after, "the others keep running")
			require.Empty(t, changed(m.up(tc.file)))
			require.Len(t, m.processesOf(alpha), 1)
		})
	}
}

func TestReplaceRestartsAProcess(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	before := m.pids()
	s := m.open(file())
	require.NoError(t, s.rt.Replace(t.Context(), s.rt.topology.Component("front-proxy/main")))
	after := m.pids()
	require.NotEqual(t, before[proxy], after[proxy])
	delete(before, proxy)
	delete(after, proxy)
	require.Equal(t, before, after)
	require.Empty(t, changed(m.up(file())))

	require.NoError(t, s.rt.StopAll(t.Context()))
	require.NoError(t, s.rt.Replace(t.Context(), s.rt.topology.Component("front-proxy/main")), "what does not run starts with the next up")
	require.NotContains(t, m.pids(), proxy)
}

// processesOf finds the processes of a component on the machine, whatever the records say.
func (m *machine) processesOf(name string) []process.Identity {
	m.Helper()
	found, err := process.Find("kcp", m.layout().path("components", name, "config"))
	require.NoError(m, err)
	return found
}

func TestProcessOfADeadRunIsFound(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	// The run was killed after it started the process and before it recorded the PID.
	l := m.layout()
	rec, err := l.record(alpha)
	require.NoError(t, err)
	id := rec.Identity
	rec.Identity = process.Identity{}
	require.NoError(t, l.writeRecord(alpha, rec))

	require.Empty(t, changed(m.up(file())))
	require.Equal(t, []process.Identity{id}, m.processesOf(alpha))
	m.down(file())
	require.Empty(t, m.processesOf(alpha))
}

// The record comes before the process: a run that is killed in between leaves no process that no run knows.
func TestAProcessIsRecordedBeforeItStarts(t *testing.T) {
	m := newMachine(t)
	rt := m.open(file()).rt
	require.NoError(t, os.MkdirAll(rt.layout.path("components", alpha), 0o700))
	w := &workload{name: alpha, hash: "new", dir: rt.layout.path("components", alpha)}
	require.Error(t, rt.supervisor.start(w, processRecord{Hash: "new", Binary: binary{Path: "/nowhere"}}))
	rec, err := rt.layout.record(alpha)
	require.NoError(t, err)
	require.NotNil(t, rec)
	require.Equal(t, "new", rec.Hash)
	require.Zero(t, rec.PID)
}

// A state directory that is moved away while kcp runs is missed, and not taken for a setup that was never installed.
func TestStateDirectoryOfARunningSetupIsMissed(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	pids := m.pids()
	dir := m.layout().Dir
	watching := m.open(file()).rt
	require.NoError(t, os.Rename(dir, dir+".moved"))
	require.ErrorContains(t, watching.Wait(t.Context()), "the state directory "+dir+" does not exist any more")
	require.ErrorContains(t, watching.End(t.Context(), false), "its state directory "+dir+" was moved or deleted")
	require.NoDirExists(t, dir)
	err := m.open(file()).rt.Moved()
	require.ErrorContains(t, err, "its state directory "+dir+" was moved or deleted")
	for _, pid := range pids {
		require.ErrorContains(t, err, strconv.Itoa(pid))
		require.Contains(t, clierr.Hint(err), strconv.Itoa(pid))
	}
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Rename(dir+".moved", dir))
	require.NoError(t, m.open(file()).rt.Moved())
	require.Equal(t, pids, m.pids())
}

// All commands work in a state directory that was moved while kcp was stopped, and down keeps the data there.
func TestMovedStateDirectory(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	require.NoError(t, m.open(file()).rt.StopAll(t.Context()))
	moved := filepath.Join(t.TempDir(), "kcpctl")
	require.NoError(t, os.Rename(m.state, moved))
	m.state = moved
	s := m.open(file())
	for _, c := range s.t.Components {
		if c.Runs() {
			st, err := s.rt.State(t.Context(), c)
			require.NoError(t, err)
			require.False(t, st.Ready)
		}
	}
	data := m.layout().path("components", alpha, "data")
	require.DirExists(t, data)
	m.down(file())
	require.DirExists(t, data)
	require.NoDirExists(t, m.layout().path("components", alpha, "config"))
	require.NoError(t, m.open(file()).rt.Purge(t.Context()))
	require.NoDirExists(t, m.layout().Dir)
}

func TestReusedPIDIsNeverKilled(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	other := exec.Command("sleep", "1000")
	require.NoError(t, other.Start())
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	l := m.layout()
	rec, err := l.record(alpha)
	require.NoError(t, err)
	require.NoError(t, rec.Identity.Stop(t.Context(), 0))
	rec.PID = other.Process.Pid
	require.NoError(t, l.writeRecord(alpha, rec))

	m.down(file())
	id, err := process.Identify(other.Process.Pid)
	require.NoError(t, err)
	require.True(t, id.Alive())
}

func TestDownLeavesOnlyData(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	data := m.layout().path("components", alpha, "data", "etcd", "db")
	require.NoError(t, os.WriteFile(data, []byte("data"), 0o600))
	pids := m.pids()
	m.down(file())
	for name, pid := range pids {
		_, err := process.Identify(pid)
		require.Error(t, err, name)
	}
	var left []string
	require.NoError(t, filepath.WalkDir(m.layout().Dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(m.layout().Dir, path)
		if !d.IsDir() && !strings.HasPrefix(rel, dirPKI+"/") {
			left = append(left, rel)
		}
		return err
	}))
	want := []string{"components/demo-cache/data/etcd/kcpctl-volume", "components/demo-root/data/etcd/kcpctl-volume", "components/demo-shard-alpha/data/etcd/db",
		"components/demo-shard-alpha/data/etcd/kcpctl-volume", "history/history.json", "history/setup.1.yaml", "ports.json"}
	require.Empty(t, cmp.Diff(want, left))

	s := m.open(file())
	require.NoError(t, s.rt.Purge(t.Context()))
	require.NoDirExists(t, m.state)
}

// After a disk was full, the state directory, or that of a shard, is on another one, and has a symbolic link instead.
func TestDirectoriesThatAreSymbolicLinks(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	require.NoError(t, m.open(file()).rt.StopAll(t.Context()))
	other := t.TempDir()
	move := func(dir string) {
		to := filepath.Join(other, filepath.Base(dir))
		require.NoError(t, os.Rename(dir, to))
		require.NoError(t, os.Symlink(to, dir))
	}
	shard := m.layout().path("components", alpha)
	move(shard)
	move(m.state)
	volume, err := os.ReadFile(filepath.Join(shard, "data/etcd", fileVolume))
	require.NoError(t, err)
	m.up(file("  - name: beta")) // chooses a port
	m.down(file())
	again, err := os.ReadFile(filepath.Join(shard, "data/etcd", fileVolume))
	require.NoError(t, err)
	require.Equal(t, volume, again)

	scope, err := m.open(file()).rt.PurgeScope(t.Context())
	require.NoError(t, err)
	require.Len(t, scope, 2)
	require.Contains(t, scope[1], shard+", but not "+filepath.Join(other, alpha))
	require.NoError(t, m.open(file()).rt.Purge(t.Context()))
	require.FileExists(t, filepath.Join(other, alpha, "data/etcd", fileVolume))
}

func TestPurgeRefusesWhileProcessesRun(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	err := m.open(file()).rt.Purge(t.Context())
	require.ErrorContains(t, err, "is still running (pid ")
	require.Len(t, m.pids(), 4)
}

func TestRemovedComponentIsStopped(t *testing.T) {
	m := newMachine(t)
	m.up(file("  - name: beta"))
	require.Len(t, m.pids(), 5)
	p := m.up(file())
	require.Positive(t, p.Count(plan.Delete))
	require.Len(t, m.pids(), 4)
	require.DirExists(t, m.layout().path("components/demo-shard-beta/data"), "data is kept")
	require.NoDirExists(t, m.layout().path("components/demo-shard-beta/config"))
}

func TestStopIsGracefulThenHard(t *testing.T) {
	for name, tc := range map[string]struct{ mode, lastLine string }{
		"graceful": {"fine", "bye"},
		"hard":     {"deaf", "starting deaf"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.up(file(fakeMode(tc.mode)))
			s := m.open(file(fakeMode(tc.mode)))
			require.NoError(t, s.rt.StopAll(t.Context()))
			require.Empty(t, m.processesOf(alpha))
			log, err := os.ReadFile(m.layout().logFile(alpha))
			require.NoError(t, err)
			lines := strings.Split(strings.TrimSpace(string(log)), "\n")
			require.Equal(t, tc.lastLine, lines[len(lines)-1])
			require.Len(t, changed(m.up(file(fakeMode(tc.mode)))), 4, "up starts all of them again")
		})
	}
}

// A process that is not ready has no requests to finish, so its grace period is short.
func TestUnreadyProcessIsStoppedSoon(t *testing.T) {
	m := newMachine(t)
	slow := file(`    podTemplate: {spec: {terminationGracePeriodSeconds: 3600, containers: [{name: kcp, env: [{name: FAKE, value: hung}]}]}}`)
	s := m.open(slow)
	s.apply()
	s.await("shard/alpha", func(st ready.State) bool { return st.Reason == "/readyz: waiting for bootstrap, etcd" })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, m.open(slow).rt.StopAll(ctx))
	require.Empty(t, m.processesOf(alpha))
}

func TestReadyProcessHasItsGracePeriod(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	s := m.open(file())
	for name, id := range map[string]topology.ID{alpha: "shard/alpha", proxy: "front-proxy/main"} {
		require.True(t, s.rt.supervisor.isReady(t.Context(), &workload{name: name}), id)
	}
	m.stopAll()
	require.False(t, s.rt.supervisor.isReady(t.Context(), &workload{name: alpha}))
	require.False(t, s.rt.supervisor.isReady(t.Context(), &workload{name: "unknown"}))
}

func TestCrashIsReportedWithItsLog(t *testing.T) {
	m := newMachine(t)
	s := m.open(file(fakeMode("crash")))
	s.apply()
	defer s.lock()()
	st := s.await("shard/alpha", func(st ready.State) bool { return st.Stuck })
	require.Equal(t, "exited with code 3, crashed repeatedly", st.Reason)
	require.Equal(t, []string{"starting crash", "Error: no disk, no cry"}, st.Detail)
	require.Equal(t, int32(1), st.Restarts, "a second fast exit in a row ends the attempts")

	// A later run finds it in the record, and starts nothing.
	st, err := m.open(file(fakeMode("crash"))).rt.State(t.Context(), s.t.Component("shard/alpha"))
	require.NoError(t, err)
	require.Equal(t, ready.State{
		Replicas: 1, Reason: "exited with code 3, crashed repeatedly", Stuck: true, Detail: []string{"starting crash", "Error: no disk, no cry"},
		Restarts: 1, Since: st.Since,
	}, st)
}

// A package manager may have put another release of kcp in the place of the one that a process ran.
func TestNoProcessStartsFromAnotherBinary(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	replaced := func(version, path string) {
		rec, err := m.layout().record(alpha)
		require.NoError(t, err)
		rec.Binary.Size++
		if version != "" {
			rec.Binary.Version = version
		}
		if path != "" {
			rec.Binary.Path = path
		}
		require.NoError(t, m.layout().writeRecord(alpha, rec))
	}
	s := m.open(file())
	pid := m.pids()[alpha]
	replaced("v0.1.0", "")
	err := s.rt.Replace(t.Context(), s.t.Component("shard/alpha"))
	require.ErrorContains(t, err, "restart shard/alpha: v0.1.0, which it runs, is gone, and ")
	require.Equal(t, pid, m.pids()[alpha])

	m.up(file()) // starts the release of the setup
	pid = m.pids()[alpha]
	replaced("", "/gone/kcp")
	require.NoError(t, s.rt.Replace(t.Context(), s.t.Component("shard/alpha")), "the same release is elsewhere")
	require.NotEqual(t, pid, m.pids()[alpha])

	replaced("", "")
	m.crash(alpha)
	st := s.look("shard/alpha")
	require.Contains(t, st.Reason, "; not restarted, because "+filepath.Join(fakeBinaries, "kcp")+" was replaced or removed: run kcpctl up")
	require.True(t, st.Stuck)
	require.Empty(t, m.processesOf(alpha))
	m.up(file())
}

func TestUnreadyNamesTheChecks(t *testing.T) {
	m := newMachine(t)
	s := m.open(file(fakeMode("unready")))
	s.apply()
	s.await("shard/alpha", func(st ready.State) bool { return st.Reason == "/readyz: waiting for bootstrap, etcd" })
}

// Without the PKI, nothing is known about processes that run: they are not called unready.
func TestWithoutThePKINothingIsProbed(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	require.NoError(t, os.RemoveAll(m.layout().path(dirPKI)))
	s := m.open(file())
	st, err := s.rt.State(t.Context(), s.t.Component("shard/alpha"))
	require.NoError(t, err)
	require.False(t, st.Ready)
	require.True(t, st.Unexamined)
	require.Contains(t, st.Reason, "not probed: the server CA is not in the PKI store")
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
}

// crash kills a process, and waits until it is dead.
func (m *machine) crash(name string) {
	m.Helper()
	rec, err := m.layout().record(name)
	require.NoError(m, err)
	kill(m.T, rec.PID)
	require.Eventually(m, func() bool { return !rec.Alive() }, patience, time.Millisecond)
}

func TestWaitRestartsAndNoticesStop(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	s.apply()
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- s.rt.Wait(ctx) }()
	pid := m.pids()[proxy]
	kill(t, pid)
	require.Eventually(t, func() bool {
		m.clock.Advance(process.FastExit)
		rec, err := m.layout().record(proxy)
		return err == nil && rec.PID != pid && rec.Alive()
	}, patience, pollInterval)

	m.down(file()) // another kcpctl
	require.ErrorContains(t, <-ended, "not running")
}

// The lock is held from the decision to restart a process until it is started: another run would start a second one, or
// find nothing to stop.
func TestWaitRestartsUnderTheLock(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	s, other := m.open(file()), m.open(file())
	var decisions []error
	s.rt.supervisor.now = func() time.Time {
		_, unlock, err := other.rt.Lock(t.Context())
		decisions = append(decisions, err)
		if err == nil {
			unlock()
		}
		return m.clock.Now()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	pid := m.pids()[alpha]
	kill(t, pid)
	go func() { ended <- s.rt.Wait(ctx) }()
	require.Eventually(t, func() bool {
		m.clock.Advance(time.Second)
		rec, err := m.layout().record(alpha)
		return err == nil && rec.PID != pid && rec.Alive()
	}, patience, pollInterval)
	cancel()
	require.NoError(t, <-ended)
	require.NotEmpty(t, decisions)
	for _, err := range decisions {
		require.Equal(t, clierr.Conflict, clierr.Code(err), "%v", err)
	}
	require.Len(t, m.processesOf(alpha), 1)
}

// All runs that watch a setup count the crashes together: two of them do not restart a process twice as often.
func TestRunsCountTheSameCrashes(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	a, b := m.open(file()), m.open(file())
	m.crash(alpha)
	require.Equal(t, "ended by signal: killed, restarting", a.look("shard/alpha").Reason)
	require.Equal(t, "ended by signal: killed, restarting", b.look("shard/alpha").Reason)
	m.clock.Advance(time.Second)
	a.look("shard/alpha") // starts it
	m.crash(alpha)
	st := b.look("shard/alpha")
	require.Equal(t, "ended by signal: killed, crashed repeatedly", st.Reason)
	require.True(t, st.Stuck)
	require.Equal(t, st.Reason, a.look("shard/alpha").Reason)
	require.Empty(t, m.processesOf(alpha))
}

// A command that only looks at a setup writes nothing, so it cannot bring back what another run removes meanwhile.
func TestAStateIsReadWithoutAWrite(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	path := m.layout().recordFile(alpha)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	m.crash(alpha)
	st := m.open(file()).await("shard/alpha", func(st ready.State) bool { return st.Stuck })
	require.Equal(t, "not running any more", st.Reason)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}

// A process of an earlier run is restarted only by the run that holds the lock: two runs would start two processes.
func TestProcessThatDiesDuringARunIsRestarted(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	s := m.open(file())
	pid := m.pids()[alpha]
	kill(t, pid)
	require.Eventually(t, func() bool { return process.Reap(pid) != nil }, patience, pollInterval)
	st, err := s.rt.State(t.Context(), s.t.Component("shard/alpha"))
	require.NoError(t, err)
	require.Equal(t, "not running any more", st.Reason)
	require.True(t, st.Stuck)

	_, unlock, err := s.rt.Lock(t.Context())
	require.NoError(t, err)
	st, err = s.rt.State(t.Context(), s.t.Component("shard/alpha"))
	require.NoError(t, err)
	require.Equal(t, "not running any more, restarting", st.Reason)
	require.False(t, st.Stuck)
	s.await("shard/alpha", func(st ready.State) bool { return st.Ready })
	unlock()
	require.NotEqual(t, pid, m.pids()[alpha])
	require.Len(t, m.processesOf(alpha), 1)
}

func TestOnlyOneRunAtATime(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	_, unlock, err := s.rt.Lock(t.Context())
	require.NoError(t, err)
	_, _, err = m.open(file()).rt.Lock(t.Context())
	require.ErrorContains(t, err, "another kcpctl (pid ")
	require.Equal(t, clierr.Conflict, clierr.Code(err))
	unlock()
	_, unlock, err = m.open(file()).rt.Lock(t.Context())
	require.NoError(t, err)
	unlock()
	require.NoFileExists(t, m.layout().path(fileLock))
}

// The installation of a later kcpctl, and another one than the file names, get no lock. They can be read.
func TestNoLockForTheInstallationOfALaterKcpctl(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	path := s.rt.layout.path(fileRecord)
	require.NoError(t, disk.WriteState(path, []byte(`{"installation":"demo-x7k2m9qd","format":{"number":9,"minWriter":9,"release":"v9.9.0"}}`)))
	_, err := s.rt.Record(t.Context())
	require.NoError(t, err)
	_, _, err = s.rt.Lock(t.Context())
	require.ErrorContains(t, err, "the record of installation demo-x7k2m9qd has format 9")
	require.Error(t, s.rt.writeRecord(&record.Record{Installation: "demo-x7k2m9qd"}))

	require.NoError(t, disk.WriteState(path, []byte(`{"installation":"demo-x7k2m9qd","later":true}`)))
	require.NoError(t, s.rt.writeRecord(&record.Record{Installation: "demo-x7k2m9qd"}))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"later":true`)
	s.t.Setup.Metadata.Installation = "demo-aaaaaaaa"
	_, _, err = s.rt.Lock(t.Context())
	require.ErrorContains(t, err, "the setup file is for installation demo-aaaaaaaa")
}

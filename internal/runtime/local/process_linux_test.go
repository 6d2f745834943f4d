package local

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/local/ports"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

func TestPreflightNamesTheOwnerOfAPort(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	require.NoError(t, s.rt.layout.ReservePorts(t.Context(), s.t.Setup))
	port := s.t.Component("front-proxy/main").Port
	require.Equal(t, m.base, port, "the first front-proxy has the base port")
	l, err := net.Listen("tcp", ports.Address(port))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })

	err = s.preflight()
	require.ErrorContains(t, err, fmt.Sprintf("port %d of front-proxy/main is taken by %s (pid %d)", port, os.Args[0], os.Getpid()))
	require.Contains(t, clierr.Hint(err), "--base-port")
	require.NoError(t, s.rt.Close())
	require.NoDirExists(t, m.state, "preflight writes nothing")
}

// A killed process counts as dead before the kernel has closed its sockets. up waits for that before it starts the next
// one.
func TestUpWaitsForThePortsOfADyingProcess(t *testing.T) {
	for name, again := range map[string]func(s *session){
		"in the preflight": func(s *session) { require.NoError(t, s.preflight()) },
		"before the next process is started": func(s *session) {
			p := s.plan()
			require.NoError(t, s.rt.Begin(t.Context(), p, &record.Record{}))
			require.NoError(t, s.rt.Apply(t.Context(), p.Of("shard/alpha"), run.PlanOptions{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			zombie := file(fakeMode("zombie"))
			m.up(zombie)
			pid := m.pids()[alpha]
			id, err := process.Identify(pid)
			require.NoError(t, err)
			s := m.open(zombie)
			require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
			require.Eventually(t, func() bool { return !id.Alive() }, patience, time.Millisecond)
			gone := m.layout().path("components", alpha, "gone")
			t.Cleanup(func() { _ = os.WriteFile(gone, nil, 0o600) })
			looks := 0
			s.rt.layout.ports.Listening = func(port int32) bool {
				if looks++; looks == 3 {
					require.NoError(t, os.WriteFile(gone, nil, 0o600))
				}
				return ports.Listening(port)
			}
			again(s)
			require.Greater(t, looks, 3, "it still held its port")
			require.NoError(t, os.Remove(gone))
			m.up(zombie)
			rec, err := m.layout().record(alpha)
			require.NoError(t, err)
			require.NotEqual(t, pid, rec.PID)
			require.EqualValues(t, 1, rec.Restarts, "the next one did not fail because of the port")
		})
	}
}

// The next up must not find the ports of a process that was stopped and whose threads the kernel is still ending.
func TestStopWaitsForThePortsOfADyingProcess(t *testing.T) {
	m := newMachine(t)
	m.up(file(fakeMode("zombie")))
	id, err := process.Identify(m.pids()[alpha])
	require.NoError(t, err)
	s := m.open(file())
	gone, port := m.layout().path("components", alpha, "gone"), s.t.Component("shard/alpha").Port
	stopped := make(chan error)
	go func() { stopped <- s.rt.StopAll(t.Context()) }()
	require.Eventually(t, func() bool { return !id.Alive() }, patience, time.Millisecond)
	require.True(t, ports.Listening(port), "it still holds its port")
	select {
	case err := <-stopped:
		require.Fail(t, "it did not wait", err)
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, os.WriteFile(gone, nil, 0o600))
	require.NoError(t, <-stopped)
	require.False(t, ports.Listening(port))
}

// A process has an exit status when the kernel has ended its last thread.
func TestDyingProcessIsReportedWithItsExitStatus(t *testing.T) {
	m := newMachine(t)
	s := m.open(file(fakeMode("zombie")))
	s.apply()
	s.await("shard/alpha", func(st ready.State) bool { return st.Ready })
	id, err := process.Identify(m.pids()[alpha])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(id.PID, syscall.SIGTERM))
	require.Eventually(t, func() bool { return !id.Alive() }, patience, time.Millisecond)
	defer s.lock()()
	gone := m.layout().path("components", alpha, "gone")
	time.AfterFunc(200*time.Millisecond, func() { _ = os.WriteFile(gone, nil, 0o600) })
	st, err := s.rt.State(t.Context(), s.t.Component("shard/alpha"))
	require.NoError(t, err)
	require.Equal(t, "exited with code 0, restarting", st.Reason)
}

// up does not wait for the port of another program.
func TestUpDoesNotWaitForThePortOfALiveProcess(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	m.stopAll()
	s := m.open(file())
	port := s.t.Component("shard/alpha").Port
	l, err := net.Listen("tcp", ports.Address(port))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	looks := 0
	s.rt.layout.ports.Listening = func(port int32) bool { looks++; return ports.Listening(port) }
	s.rt.layout.ports.WaitFree(t.Context(), "shard/alpha")
	require.Equal(t, 3, looks, "it looks at each port once")
	require.ErrorContains(t, s.preflight(), fmt.Sprintf("is taken by %s (pid %d)", os.Args[0], os.Getpid()))
}

// A full disk is often full of logs: kcp can be stopped then.
func TestAFullDiskDoesNotKeepKcpRunning(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	require.NoError(t, os.Symlink("/dev/full", m.layout().path(fileLock)))
	require.NoError(t, m.open(file()).rt.End(t.Context(), false))
	require.Empty(t, m.processesOf(alpha))
}

// Also kcpctl down, with every write failing.
func TestDownOnAFullDisk(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, os.MkdirAll(m.state, 0o700))
	if err := syscall.Mount("tmpfs", m.state, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a full disk needs the right to mount one: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(m.state, syscall.MNT_DETACH)) })
	m.up(file())
	s := m.open(file())
	known, err := s.rt.Record(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.rt.Keep(t.Context(), known.With(s.pki, nil)))

	full, err := os.Create(filepath.Join(m.state, "full"))
	require.NoError(t, err)
	_, err = io.Copy(full, rand.Reader)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, full.Close())
	s = m.open(file())
	up := &plan.Plan{Items: []plan.Item{{Action: plan.Delete}, {Action: plan.Create}}}
	require.ErrorIs(t, s.rt.Begin(t.Context(), up, &record.Record{}), syscall.ENOSPC)
	removal := &plan.Plan{Items: []plan.Item{{Action: plan.Delete}}}
	require.ErrorIs(t, s.rt.Begin(t.Context(), removal, &record.Record{}), syscall.ENOSPC, "it would have to be recorded")

	down := &deploy.Down{Runtime: s.rt, Topology: s.t, Observe: func(run.Event) {}, Now: m.clock.Now}
	require.NoError(t, down.Run(t.Context()))
	require.Empty(t, m.processesOf(alpha))
}

func TestProcessInheritsNothing(t *testing.T) {
	m := newMachine(t)
	leak := filepath.Join(t.TempDir(), "leak")
	fd, err := syscall.Open(leak, syscall.O_CREAT|syscall.O_RDWR, 0o600) // without O_CLOEXEC, as a shell has it
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	t.Setenv("HTTPS_PROXY", "http://proxy.invalid")
	m.up(file())
	for name, pid := range m.pids() {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		require.NoError(t, err)
		require.NotEmpty(t, links)
		for _, link := range links {
			target, _ := os.Readlink(link)
			require.NotEqual(t, leak, target, name)
		}
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		require.NoError(t, err)
		require.NotContains(t, string(env), "proxy.invalid")
		session, err := syscall.Getpgid(pid)
		require.NoError(t, err)
		require.Equal(t, pid, session, "it leads a session of its own")
	}
}

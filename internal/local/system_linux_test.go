package local

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/run"
)

func TestPreflightNamesTheOwnerOfAPort(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	port := s.t.Component("front-proxy/main").Port
	require.Equal(t, m.base, port, "the first front-proxy has the base port")
	l, err := net.Listen("tcp", address(port))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })

	err = s.preflight()
	require.ErrorContains(t, err, fmt.Sprintf("port %d, meant for front-proxy/main, is taken by %s (pid %d)", port, os.Args[0], os.Getpid()))
	require.Contains(t, clierr.Hint(err), "--base-port")
	require.NoDirExists(t, m.state, "preflight writes nothing")
}

// A process that was killed counts as dead before the kernel has closed its sockets: up starts the next one when it has.
func TestUpWaitsForThePortsOfADyingProcess(t *testing.T) {
	for name, again := range map[string]func(s *session){
		"before it is said that they are taken": func(s *session) { require.NoError(t, s.preflight()) },
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
			id, err := identify(pid)
			require.NoError(t, err)
			s := m.open(zombie)
			require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
			require.Eventually(t, func() bool { return !id.alive() }, patience, time.Millisecond)
			gone := m.layout().path("components", alpha, "gone")
			t.Cleanup(func() { _ = os.WriteFile(gone, nil, 0o600) })
			looks := 0
			s.rt.layout.ports.free = func(port int32) bool {
				if looks++; looks == 3 {
					require.NoError(t, os.WriteFile(gone, nil, 0o600))
				}
				return portFree(port)
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

// A stranger's port is not waited for.
func TestUpDoesNotWaitForThePortOfALiveProcess(t *testing.T) {
	m := newMachine(t)
	m.up(file())
	m.stopAll()
	s := m.open(file())
	port := s.t.Component("shard/alpha").Port
	require.False(t, s.rt.held("shard/alpha"))
	l, err := net.Listen("tcp", address(port))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	require.False(t, s.rt.held("shard/alpha"))
	require.ErrorContains(t, s.preflight(), fmt.Sprintf("is taken by %s (pid %d)", os.Args[0], os.Getpid()))
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

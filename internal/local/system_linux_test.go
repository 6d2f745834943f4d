package local

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

func TestPreflightNamesTheOwnerOfAPort(t *testing.T) {
	m := newMachine(t)
	s := m.open(file())
	port := s.t.Component("front-proxy/main").Port
	require.Equal(t, m.base, port, "the first front-proxy has the base port")
	l, err := net.Listen("tcp", address(port))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })

	err = s.rt.Preflight(t.Context(), s.objects)
	require.EqualError(t, err, fmt.Sprintf("port %d, meant for front-proxy/main, is taken by %s (pid %d)", port, os.Args[0], os.Getpid()))
	require.Contains(t, clierr.Hint(err), "--base-port")
	require.NoDirExists(t, m.state, "preflight writes nothing")
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

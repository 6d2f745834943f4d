//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

// asKcpctl is set for a process that is kcpctl.
const asKcpctl = "TEST_IS_KCPCTL"

const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asKcpctl) != "" {
		main()
	}
	os.Exit(m.Run())
}

// kcpctl returns a command that runs in an empty home.
func kcpctl(t *testing.T, home string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = []string{asKcpctl + "=true", "HOME=" + home, "PATH=" + os.Getenv("PATH")}
	c.Dir = home
	return c
}

const minimal = "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\n"

// A kcp that ends with its command ends with each signal, also if the output has lost its reader.
func TestNothingIsLeftAfterASignal(t *testing.T) {
	for name, signals := range map[string][]syscall.Signal{
		"Ctrl-C": {syscall.SIGINT, syscall.SIGHUP}, "the terminal is closed": {syscall.SIGHUP, syscall.SIGHUP},
		"kill": {syscall.SIGTERM, syscall.SIGHUP}, "kill, and the system delivers SIGHUP first": {syscall.SIGHUP, syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			if slices.ContainsFunc(signals, func(s syscall.Signal) bool { return signal.Ignored(s) }) {
				t.Skip("this test runs below nohup")
			}
			home := t.TempDir()
			pids := filepath.Join(home, "pids")
			ending := filepath.Join(home, "ending")
			// It starts, never becomes ready, and takes a while to end.
			script := "#!/bin/sh\n[ \"$1\" = --version ] && exit\ntrap 'echo >" + ending + "; kill $!; sleep 0.2; exit' TERM\n" +
				"echo $$ >>" + pids + "\nsleep 1000 &\nwait\n"
			for _, program := range []string{"kcp", "kcp-front-proxy"} {
				require.NoError(t, os.WriteFile(filepath.Join(home, program), []byte(script), 0o755))
			}
			require.NoError(t, os.WriteFile(filepath.Join(home, "kcp.yaml"), []byte(minimal), 0o600))
			c := kcpctl(t, home, "up", "--local", "--ephemeral", "--plain", "--kcp-bin-dir", home)
			output, err := c.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			killed := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
			defer killed.Stop()
			var started process.Identity
			require.Eventually(t, func() bool {
				raw, _ := os.ReadFile(pids)
				pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
				if err == nil {
					started, err = process.Identify(pid)
				}
				return err == nil
			}, patience, 10*time.Millisecond)
			require.NoError(t, output.Close()) // the process at the other end of the pipe has ended
			require.NoError(t, c.Process.Signal(signals[0]))
			require.Eventually(t, func() bool {
				_, err := os.Stat(ending)
				return err == nil
			}, patience, 10*time.Millisecond)
			require.NoError(t, c.Process.Signal(signals[1])) // shells forward SIGHUP, and systemd can send it
			require.Error(t, c.Wait())
			require.Equal(t, 130, c.ProcessState.ExitCode(), c.ProcessState)
			require.False(t, started.Alive())
			require.NoDirExists(t, filepath.Join(home, ".local", "state", "kcpctl"))
		})
	}
}

// A command that only prints ends quietly when its output has lost its reader.
func TestWithoutAReader(t *testing.T) {
	home := t.TempDir()
	c := kcpctl(t, home, "schema")
	out, in, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, out.Close())
	c.Stdout = in
	var errs strings.Builder
	c.Stderr = &errs
	err = c.Run()
	require.NoError(t, in.Close())
	require.Contains(t, []int{0, 130}, c.ProcessState.ExitCode(), err)
	require.Empty(t, errs.String())
}

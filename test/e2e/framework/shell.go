package framework

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// shell is a shell in a terminal, in which a test types commands one after another.
type shell struct {
	terminal *os.File
	// lines is where the shell reads commands: what a test writes to the terminal are answers to questions.
	lines *os.File
}

// loop runs each command that it reads, and prints a separator and the exit code.
const loop = `while IFS= read -r -d '' line <&3; do eval "$line" 3<&-; printf '\036%d\036' $?; done`

var (
	question = regexp.MustCompile(`\[y/N\] $`)
	ended    = regexp.MustCompile(`(?s)^(.*)\x1e(\d+)\x1e$`)
)

// startShell starts a shell in a directory, with the environment of a command.
func startShell(t *testing.T, dir string, env []string) *shell {
	t.Helper()
	terminal, tty := openTerminal(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd, cancel := Command{Name: "bash", Args: []string{"--norc", "--noprofile", "-c", loop}, Env: env, Limit: time.Hour}.Prepare(t.Context())
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, tty, tty, tty
	cmd.ExtraFiles = []*os.File{read}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	// Commands that the shell runs are in its process group.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	require.NoError(t, cmd.Start())
	require.NoError(t, tty.Close())
	require.NoError(t, read.Close())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		_ = write.Close()
		_ = terminal.Close()
	})
	return &shell{terminal, write}
}

// openTerminal returns both ends of a terminal. It is wide, so that no line is truncated.
func openTerminal(t *testing.T) (terminal, tty *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 250}))
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return os.NewFile(uintptr(fd), "/dev/ptmx"), tty
}

// typed types a command, answers its questions with yes, and returns what it has printed.
func (s *shell) typed(t *testing.T, text string) Result {
	t.Helper()
	_, err := s.lines.WriteString(text + "\x00")
	require.NoError(t, err)
	require.NoError(t, s.terminal.SetReadDeadline(time.Now().Add(Patience)))
	var screen bytes.Buffer
	for buffer := make([]byte, 4096); ; {
		n, err := s.terminal.Read(buffer)
		require.NoError(t, err, "%s\n%s", text, screen.String())
		screen.Write(buffer[:n])
		if question.Match(screen.Bytes()) {
			_, err := fmt.Fprintln(s.terminal, "y")
			require.NoError(t, err)
		}
		if m := ended.FindSubmatch(screen.Bytes()); m != nil {
			code, err := strconv.Atoi(string(m[2]))
			require.NoError(t, err)
			return Result{Line: text, Stdout: strings.ReplaceAll(string(m[1]), "\r\n", "\n"), Code: code}
		}
	}
}

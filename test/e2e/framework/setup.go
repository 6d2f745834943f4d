package framework

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
)

// Runtime abstracts from the place where a setup runs. Keys of maps are the names of objects or files.
type Runtime interface {
	// Flags returns the flags with which a command of kcpctl finds the runtime.
	Flags(command string) []string
	// Written returns a value for each thing that kcpctl has written, which changes with each write.
	Written(t *testing.T) map[string]string
	// Running returns the instances by workload.
	Running(t *testing.T) map[string]instance
	// Keys returns the certificates and private keys of the authorities, and everything that components can read.
	Keys(t *testing.T) (authorities, readable map[string][]byte)
	// applied requires that exactly these manifests are applied.
	applied(t *testing.T, manifests string)
	// Left returns the remains of the setup.
	Left(ctx context.Context, t *testing.T) []string
}

// instance is a pod or a process.
type instance struct {
	// ID is unique: a replacement has another one.
	ID string
	// Kill kills it.
	Kill func(t *testing.T)
}

// Setup is a setup under test.
type Setup struct {
	Runtime
	Name string
	// Text is the original content of the setup file, file its path.
	Text, File string
	Env        []string
}

// NewName returns a unique name for a setup.
func NewName() string { return "e2e-" + strings.ToLower(rand.Text()[:6]) }

// Root returns the directory of the repository, above that of the test.
func Root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	require.FailNow(t, "no go.mod above the directory of the test")
	return ""
}

// NewSetup creates a setup from an example. It is removed when the test ends. home is its state directory.
func NewSetup(t *testing.T, example, name, home string, rt Runtime, env ...string) *Setup {
	t.Helper()
	raw, err := examples.Read(example)
	require.NoError(t, err)
	s := &Setup{
		Runtime: rt, Name: name, File: filepath.Join(t.TempDir(), "kcp.yaml"),
		// Only the first name is that of the setup.
		Text: strings.Replace(string(raw), regexp.MustCompile(`(?m)^  name: \S+`).FindString(string(raw)), "  name: "+name, 1),
		Env:  append(env, "XDG_STATE_HOME="+home, "XDG_CONFIG_HOME="+home),
	}
	s.Write(t, s.Text)
	t.Cleanup(func() {
		if len(s.Left(context.Background(), t)) == 0 {
			return
		}
		s.Command("down", "--yes", "--purge").Run(context.Background(), t).OK(t)
	})
	return s
}

func (s *Setup) Write(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(s.File, []byte(text), 0o600))
}

// Edit writes the original file with the first occurrence of a text replaced.
func (s *Setup) Edit(t *testing.T, old, replacement string) {
	t.Helper()
	require.Contains(t, s.Text, old)
	s.Write(t, strings.Replace(s.Text, old, replacement, 1))
}

// Command returns a command of kcpctl for the setup.
func (s *Setup) Command(name string, args ...string) Command {
	all := append([]string{name, "--file", s.File}, s.Flags(name)...)
	env := slices.Clone(s.Env)
	if l, ok := s.Runtime.(*Local); ok { // not a flag: commands that start nothing do not have it
		env = append(env, "KCPCTL_KCP_BIN_DIR="+l.Binaries)
	}
	return Command{Name: os.Getenv("E2E_KCPCTL"), Args: append(all, args...), Env: env}
}

func (s *Setup) Kcpctl(t *testing.T, name string, args ...string) Result {
	t.Helper()
	began := time.Now()
	r := s.Command(name, args...).Run(t.Context(), t)
	if took := time.Since(began); took > time.Second {
		t.Logf("%4.1fs, exit code %d: kcpctl %s %s", took.Seconds(), r.Code, name, strings.Join(args, " "))
	}
	return r
}

// Kubectl runs kubectl against kcp, with the kubeconfig admin.
func (s *Setup) Kubectl(t *testing.T, args ...string) Result {
	t.Helper()
	return s.KubectlAs(t, []string{"admin"}, args...)
}

// KubectlAs runs kubectl against kcp, with the kubeconfig that the given arguments of kcpctl kubeconfig print.
func (s *Setup) KubectlAs(t *testing.T, kubeconfig []string, args ...string) Result {
	t.Helper()
	return s.Kcpctl(t, "kubeconfig", append(append(kubeconfig, "--", "kubectl"), args...)...)
}

var (
	// noise matches what a run must not print: logs of client-go, warnings of API servers, crashes.
	noise = regexp.MustCompile(`(?mi)^[IWEF][0-9]{4} .*|\bwarning:|deprecated|^panic:|^goroutine `)
	// hurried matches logs of client-go about requests that end early, which a busy server causes.
	hurried = regexp.MustCompile(`(?i)^[IWEF][0-9]{4} .*(watch|connection|stream|EOF|time.?out|timed out|deadline|throttl)`)
)

// Quiet requires that a run has printed no noise.
func (r Result) Quiet(t *testing.T) Result {
	t.Helper()
	require.Empty(t, r.Stdout, "stdout is for requested output")
	require.Empty(t, slices.DeleteFunc(noise.FindAllString(r.Stderr, -1), hurried.MatchString), r.Stderr)
	return r
}

// Up runs kcpctl up and requires that it succeeds.
func (s *Setup) Up(t *testing.T, args ...string) Result {
	t.Helper()
	return s.Kcpctl(t, "up", args...).OK(t).Quiet(t)
}

// During runs a command that prints JSON events, and calls do after n events that match.
func (c Command) During(t *testing.T, n int, event *regexp.Regexp, do func(*exec.Cmd)) Result {
	t.Helper()
	r, seen := c.AtMost(t, n, event, do)
	require.GreaterOrEqual(t, seen, n, "%s ended before the event\n%s", c, r.Stderr)
	return r
}

// AtMost is during for a command that may have fewer events. It returns how many there were until the n-th.
func (c Command) AtMost(t *testing.T, n int, event *regexp.Regexp, do func(*exec.Cmd)) (r Result, seen int) {
	t.Helper()
	r = c.Watch(t, func(cmd *exec.Cmd, line []byte) {
		if !event.Match(line) {
			return
		}
		if seen++; seen == n {
			t.Log(string(line))
			do(cmd)
		}
	})
	return r, min(seen, n)
}

// Watch runs a command and calls each for every line that it prints to stdout.
func (c Command) Watch(t *testing.T, each func(cmd *exec.Cmd, line []byte)) Result {
	t.Helper()
	cmd, cancel := c.Prepare(t.Context())
	defer cancel()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		each(cmd, lines.Bytes())
	}
	_ = cmd.Wait() // the exit code says it
	return Result{Line: c.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// status is the JSON output of kcpctl status.
type status struct {
	Name, URL  string
	Ready      bool
	Components []struct {
		ID     string
		URL    string
		Ready  bool
		Reason string
		// Version is the version that runs.
		Version string
	}
	Shards []struct{ Name string }
}

// missing returns an error that names what is not ready.
func (st status) missing() error {
	for _, c := range st.Components {
		if !c.Ready {
			return fmt.Errorf("%s is not ready: %s", c.ID, c.Reason)
		}
	}
	if !st.Ready {
		return fmt.Errorf("%s is not ready", st.Name)
	}
	return nil
}

func (s *Setup) Status(t *testing.T) status {
	t.Helper()
	out, err := s.tryStatus(t)
	require.NoError(t, err)
	return out
}

// tryStatus returns an error if kcpctl status prints none.
func (s *Setup) tryStatus(t *testing.T) (out status, err error) {
	t.Helper()
	r := s.Kcpctl(t, "status", "--output", "json")
	if err := json.Unmarshal([]byte(r.Stdout), &out); err != nil {
		return out, fmt.Errorf("%s: exit code %d: %w\n%s", r.Line, r.Code, err, r.Stderr)
	}
	require.Equal(t, out.Ready, r.Code == 0, r.Stderr)
	return out, nil
}

// IDs returns the ID of the instance of each workload.
func (s *Setup) IDs(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, i := range s.Running(t) {
		out[name] = i.ID
	}
	return out
}

//go:build e2e

package e2e

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

// runtime abstracts from the place where a setup runs. Keys of maps are the names of objects or files.
type runtime interface {
	// flags returns the flags with which a command of kcpctl finds the runtime.
	flags(command string) []string
	// written returns a value for each thing that kcpctl has written, which changes with each write.
	written(t *testing.T) map[string]string
	// running returns the instances by workload.
	running(t *testing.T) map[string]instance
	// keys returns the certificates and private keys of the authorities, and everything that components can read.
	keys(t *testing.T) (authorities, readable map[string][]byte)
	// applied requires that exactly these manifests are applied.
	applied(t *testing.T, manifests string)
	// left returns the remains of the setup.
	left(ctx context.Context, t *testing.T) []string
}

// instance is a pod or a process.
type instance struct {
	// id is unique: a replacement has another one.
	id string
	// kill kills it.
	kill func(t *testing.T)
}

// setup is a setup under test.
type setup struct {
	runtime
	name string
	// text is the original content of the setup file, file its path.
	text, file string
	env        []string
}

// newName returns a unique name for a setup.
func newName() string { return "e2e-" + strings.ToLower(rand.Text()[:6]) }

// newSetup creates a setup from an example. It is removed when the test ends. home is its state directory.
func newSetup(t *testing.T, example, name, home string, rt runtime, env ...string) *setup {
	t.Helper()
	raw, err := examples.Read(example)
	require.NoError(t, err)
	s := &setup{
		runtime: rt, name: name, file: filepath.Join(t.TempDir(), "kcp.yaml"),
		// Only the first name is that of the setup.
		text: strings.Replace(string(raw), regexp.MustCompile(`(?m)^  name: \S+`).FindString(string(raw)), "  name: "+name, 1),
		env:  append(env, "XDG_STATE_HOME="+home, "XDG_CONFIG_HOME="+home),
	}
	s.write(t, s.text)
	t.Cleanup(func() {
		if len(s.left(context.Background(), t)) == 0 {
			return
		}
		s.command("down", "--yes", "--purge").run(context.Background(), t).ok(t)
	})
	return s
}

func (s *setup) write(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(s.file, []byte(text), 0o600))
}

// edit writes the original file with the first occurrence of a text replaced.
func (s *setup) edit(t *testing.T, old, replacement string) {
	t.Helper()
	require.Contains(t, s.text, old)
	s.write(t, strings.Replace(s.text, old, replacement, 1))
}

// command returns a command of kcpctl for the setup.
func (s *setup) command(name string, args ...string) command {
	all := append([]string{name, "--file", s.file}, s.flags(name)...)
	env := slices.Clone(s.env)
	if l, ok := s.runtime.(*local); ok { // not a flag: commands that start nothing do not have it
		env = append(env, "KCPCTL_KCP_BIN_DIR="+l.binaries)
	}
	return command{name: os.Getenv("E2E_KCPCTL"), args: append(all, args...), env: env}
}

func (s *setup) kcpctl(t *testing.T, name string, args ...string) result {
	t.Helper()
	began := time.Now()
	r := s.command(name, args...).run(t.Context(), t)
	if took := time.Since(began); took > time.Second {
		t.Logf("%4.1fs, exit code %d: kcpctl %s %s", took.Seconds(), r.code, name, strings.Join(args, " "))
	}
	return r
}

// kubectl runs kubectl against kcp, with the kubeconfig admin.
func (s *setup) kubectl(t *testing.T, args ...string) result {
	t.Helper()
	return s.kubectlAs(t, []string{"admin"}, args...)
}

// kubectlAs runs kubectl against kcp, with the kubeconfig that the given arguments of kcpctl kubeconfig print.
func (s *setup) kubectlAs(t *testing.T, kubeconfig []string, args ...string) result {
	t.Helper()
	return s.kcpctl(t, "kubeconfig", append(append(kubeconfig, "--", "kubectl"), args...)...)
}

var (
	// noise matches what a run must not print: logs of client-go, warnings of API servers, crashes.
	noise = regexp.MustCompile(`(?mi)^[IWEF][0-9]{4} .*|\bwarning:|deprecated|^panic:|^goroutine `)
	// hurried matches logs of client-go about requests that end early, which a busy server causes.
	hurried = regexp.MustCompile(`(?i)^[IWEF][0-9]{4} .*(watch|connection|stream|EOF|time.?out|timed out|deadline|throttl)`)
)

// quiet requires that a run has printed no noise.
func (r result) quiet(t *testing.T) result {
	t.Helper()
	require.Empty(t, r.stdout, "stdout is for requested output")
	require.Empty(t, slices.DeleteFunc(noise.FindAllString(r.stderr, -1), hurried.MatchString), r.stderr)
	return r
}

// up runs kcpctl up and requires that it succeeds.
func (s *setup) up(t *testing.T, args ...string) result {
	t.Helper()
	return s.kcpctl(t, "up", args...).ok(t).quiet(t)
}

// interrupt runs kcpctl up and sends it a signal after n events that match.
func (s *setup) interrupt(t *testing.T, sig os.Signal, n int, event *regexp.Regexp) result {
	t.Helper()
	r := s.command("up", "--output", "json").during(t, n, event, func(up *exec.Cmd) {
		require.NoError(t, up.Process.Signal(sig))
	})
	require.NotZero(t, r.code)
	return r
}

// during runs a command that prints JSON events, and calls do after n events that match.
func (c command) during(t *testing.T, n int, event *regexp.Regexp, do func(*exec.Cmd)) result {
	t.Helper()
	r, seen := c.atMost(t, n, event, do)
	require.GreaterOrEqual(t, seen, n, "%s ended before the event\n%s", c, r.stderr)
	return r
}

// atMost is during for a command that may have fewer events. It returns how many there were until the n-th.
func (c command) atMost(t *testing.T, n int, event *regexp.Regexp, do func(*exec.Cmd)) (r result, seen int) {
	t.Helper()
	r = c.watch(t, func(cmd *exec.Cmd, line []byte) {
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

// watch runs a command and calls each for every line that it prints to stdout.
func (c command) watch(t *testing.T, each func(cmd *exec.Cmd, line []byte)) result {
	t.Helper()
	cmd, cancel := c.prepare(t.Context())
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
	return result{line: c.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
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

func (s *setup) status(t *testing.T) status {
	t.Helper()
	out, err := s.tryStatus(t)
	require.NoError(t, err)
	return out
}

// tryStatus returns an error if kcpctl status prints none.
func (s *setup) tryStatus(t *testing.T) (out status, err error) {
	t.Helper()
	r := s.kcpctl(t, "status", "--output", "json")
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		return out, fmt.Errorf("%s: exit code %d: %w\n%s", r.line, r.code, err, r.stderr)
	}
	require.Equal(t, out.Ready, r.code == 0, r.stderr)
	return out, nil
}

// ids returns the ID of the instance of each workload.
func (s *setup) ids(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, i := range s.running(t) {
		out[name] = i.id
	}
	return out
}

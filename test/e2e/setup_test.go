//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
)

// runtime is what differs between a cluster and this machine. Maps are by the name of an object or file.
type runtime interface {
	// flags are those with which a command of kcpctl finds the runtime.
	flags(command string) []string
	// written returns what kcpctl has written, in a form that changes with each write.
	written(t *testing.T) map[string]string
	// running returns what runs, by workload.
	running(t *testing.T) map[string]instance
	// keys returns the certificates and private keys of the authorities, and all that components can read.
	keys(t *testing.T) (authorities, readable map[string][]byte)
	// applied demands that manifests are what is applied.
	applied(t *testing.T, manifests string)
	// left returns everything that is left of the setup.
	left(ctx context.Context, t *testing.T) []string
}

// instance is a pod or a process.
type instance struct {
	// id is its own: that which replaces it has another.
	id string
	// kill ends it without grace.
	kill func(t *testing.T)
}

// setup is a setup under test.
type setup struct {
	runtime
	name string
	// text is the setup file as it was made, file is where it is.
	text, file string
	env        []string
}

// newName is a name for a setup that nobody else has.
func newName() string { return "e2e-" + strings.ToLower(rand.Text()[:6]) }

// newSetup makes a setup of an example. It is removed when the test ends. home is its state directory.
func newSetup(t *testing.T, example, name, home string, rt runtime, env ...string) *setup {
	t.Helper()
	raw, err := examples.Read(example)
	require.NoError(t, err)
	s := &setup{
		runtime: rt, name: name, file: filepath.Join(t.TempDir(), "kcp.yaml"),
		// Only the first name, which is that of the setup.
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

// edit replaces the first occurrence of a part of the file, as it was made, by another.
func (s *setup) edit(t *testing.T, old, replacement string) {
	t.Helper()
	require.Contains(t, s.text, old)
	s.write(t, strings.Replace(s.text, old, replacement, 1))
}

// command is a command of kcpctl for the setup.
func (s *setup) command(name string, args ...string) command {
	all := append([]string{name, "--file", s.file}, s.flags(name)...)
	return command{name: os.Getenv("E2E_KCPCTL"), args: append(all, args...), env: s.env}
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

// kubectl talks to kcp, as the administrator of the file.
func (s *setup) kubectl(t *testing.T, args ...string) result {
	t.Helper()
	return s.kubectlAs(t, []string{"admin"}, args...)
}

// kubectlAs talks to kcp with the kubeconfig that some arguments ask for.
func (s *setup) kubectlAs(t *testing.T, kubeconfig []string, args ...string) result {
	t.Helper()
	return s.kcpctl(t, "kubeconfig", append(append(kubeconfig, "--", "kubectl"), args...)...)
}

// noise is what a run must not print: client-go's log, API servers' warnings, crashes.
var noise = regexp.MustCompile(`(?mi)^[IWEF][0-9]{4} |\bwarning:|deprecated|^panic:|^goroutine `)

// quiet demands that a run has told nothing but its story.
func (r result) quiet(t *testing.T) result {
	t.Helper()
	require.Empty(t, r.stdout, "stdout is for what was asked for")
	require.Empty(t, noise.FindAllString(r.stderr, -1), r.stderr)
	return r
}

// up brings the setup up, and demands that this works.
func (s *setup) up(t *testing.T, args ...string) result {
	t.Helper()
	return s.kcpctl(t, "up", args...).ok(t).quiet(t)
}

// interrupt starts to bring the setup up, and sends a signal when that has told of n such events.
func (s *setup) interrupt(t *testing.T, sig os.Signal, n int, event *regexp.Regexp) result {
	t.Helper()
	c := s.command("up", "--output", "json")
	cmd, cancel := c.prepare(t.Context())
	defer cancel()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	seen := 0
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if !event.Match(lines.Bytes()) {
			continue
		}
		if seen++; seen == n {
			t.Logf("%s: %s", sig, lines.Text())
			require.NoError(t, cmd.Process.Signal(sig))
		}
	}
	err = cmd.Wait()
	require.Error(t, err, "it was done after %d events, and should have been stopped after %d", seen, n)
	return result{line: c.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

// status is what programs see of kcpctl status.
type status struct {
	Name, URL  string
	Ready      bool
	Components []struct {
		ID     string
		Ready  bool
		Reason string
		// Version is what runs.
		Version string
	}
	Shards []struct{ Name string }
}

func (s *setup) status(t *testing.T) status {
	t.Helper()
	r := s.kcpctl(t, "status", "--output", "json")
	var out status
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out), r.stderr)
	require.Equal(t, out.Ready, r.code == 0, r.stderr)
	return out
}

// ids returns which instance runs each workload.
func (s *setup) ids(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, i := range s.running(t) {
		out[name] = i.id
	}
	return out
}

// Package action tests the action setup-kcp as a runner runs it: with node, inputs in the environment, and files for what
// the action sets.
package action

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/install"
)

// fake stands for kcpctl: it writes its arguments to a file, and a kubeconfig to the file after -o.
const fake = `#!/bin/sh
echo "$@" >> "$LOG"
echo "$1 in $XDG_STATE_HOME" >> "$LOG"
[ "$1" != "$FAIL" ] || exit 3
while [ $# -gt 0 ]; do
	[ "$1" != -o ] || printf 'clusters:\n- cluster:\n    server: https://localhost:6443/clusters/root\n' > "$2"
	shift
done
`

// runner is the environment of a job.
type runner struct {
	dir string
	env []string
}

func newRunner(t *testing.T) *runner {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed: it runs actions")
	}
	dir := t.TempDir()
	r := &runner{dir: dir, env: []string{"PATH=" + os.Getenv("PATH"), "RUNNER_TEMP=" + dir, "LOG=" + filepath.Join(dir, "log"), "GITHUB_RUN_ID=42"}}
	for _, name := range []string{"OUTPUT", "ENV", "STATE", "PATH"} {
		r.env = append(r.env, "GITHUB_"+name+"="+filepath.Join(dir, name))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kcpctl"), []byte(fake), 0o700))
	return r
}

// run runs a part of the action.
func (r *runner) run(part string, env ...string) (string, error) {
	c := exec.Command("node", filepath.Join("..", "..", ".github", "actions", "setup-kcp", part))
	c.Env = append(append(r.env, "INPUT_KCPCTL="+filepath.Join(r.dir, "kcpctl")), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// read returns a file of the runner.
func (r *runner) read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.dir, name))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(raw)
}

// saved returns the state as the runner gives it to the last part.
func (r *runner) saved(t *testing.T) (env []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^(\w+)<<.*\n(.*)\n`).FindAllStringSubmatch(r.read(t, "STATE"), -1) {
		env = append(env, "STATE_"+m[1]+"="+m[2])
	}
	return env
}

func TestKCPIsStartedAndRemoved(t *testing.T) {
	r := newRunner(t)
	out, err := r.run("main.js", "INPUT_KCP-VERSION=v0.32.3")
	require.NoError(t, err, out)
	require.Regexp(t, `(?m)^up --local -f \S+/kcp.yaml --timeout 5m$`, r.read(t, "log"))
	require.Regexp(t, `(?m)^url<<.*\nhttps://localhost:6443\n`, r.read(t, "OUTPUT"))
	require.Regexp(t, `(?m)^kubeconfig<<.*\n/.*/kubeconfig\n`, r.read(t, "OUTPUT"))
	require.Regexp(t, `(?m)^KUBECONFIG<<.*\n/.*/kubeconfig\n`, r.read(t, "ENV"))
	file := regexp.MustCompile(`-f (\S+)`).FindStringSubmatch(r.read(t, "log"))[1]
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, `name: ci-42-\d+\nspec:\n  version: "v0.32.3"\n$`, string(raw))

	out, err = r.run("post.js", r.saved(t)...)
	require.NoError(t, err, out)
	require.Contains(t, r.read(t, "log"), "down --local -f "+file+" --purge --yes\n")
	own := filepath.Join(filepath.Dir(file), "state")
	require.Contains(t, r.read(t, "log"), "up in "+own+"\n")
	require.Contains(t, r.read(t, "log"), "down in "+own+"\n")
}

func TestAFailureIsReportedAndCleanedUp(t *testing.T) {
	r := newRunner(t)
	out, err := r.run("main.js", "FAIL=up")
	require.Error(t, err)
	require.Contains(t, out, "::error::")
	require.Contains(t, out, "failed with exit code 3")
	out, err = r.run("post.js", r.saved(t)...)
	require.NoError(t, err, out)
	require.Contains(t, r.read(t, "log"), "down --local")
}

func TestNothingIsRemovedThatIsToStay(t *testing.T) {
	r := newRunner(t)
	out, err := r.run("main.js", "INPUT_KEEP=true")
	require.NoError(t, err, out)
	require.Empty(t, r.saved(t))
	out, err = r.run("post.js")
	require.NoError(t, err, out)
	require.NotContains(t, r.read(t, "log"), "down")
}

func TestMistakesInInputs(t *testing.T) {
	for input, want := range map[string]string{
		"INPUT_KEEP=yes": `input keep: use true or false instead of "yes"`,
	} {
		r := newRunner(t)
		out, err := r.run("main.js", input)
		require.Error(t, err)
		require.Contains(t, out, want)
		require.Empty(t, r.read(t, "log"))
	}
	r := newRunner(t)
	out, err := r.run("main.js", "INPUT_CONFIG=kcp.yaml", "INPUT_KCP-VERSION=v0.32.3")
	require.Error(t, err)
	require.Contains(t, out, "set spec.version in the setup file")
}

func TestOnlyKcpctlIsInstalled(t *testing.T) {
	r := newRunner(t)
	out, err := r.run("main.js", "INPUT_INSTALL-ONLY=true")
	require.NoError(t, err, out)
	require.Empty(t, r.read(t, "log"))
}

func TestAReleaseIsInstalled(t *testing.T) {
	r := newRunner(t)
	mirror := []string{"INPUT_KCPCTL=", "no_proxy=127.0.0.1", "KCPCTL_RELEASES=" + install.Mirror(t, fake)}
	out, err := r.run("main.js", append(mirror, "INPUT_VERSION=v0.0.9")...)
	require.Error(t, err)
	require.Contains(t, out, "nothing is installed")
	require.Empty(t, r.read(t, "PATH")+r.read(t, "log"))

	out, err = r.run("main.js", append(mirror, "INPUT_VERSION=v0.1.0")...)
	require.NoError(t, err, out)
	kcpctl := filepath.Join(strings.TrimSpace(r.read(t, "PATH")), "kcpctl")
	require.Contains(t, r.saved(t), "STATE_kcpctl="+kcpctl)
	require.Regexp(t, `(?m)^up --local`, r.read(t, "log"))
}

//go:build e2e

// Package e2e tests kcpctl with a real kcp, as users run it: with kcpctl and kubectl, on a Kubernetes cluster and on
// this machine. run.sh provides what the tests need.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// patience is the time limit of a command: the slowest up takes about a minute on two cores.
	patience = 6 * time.Minute
	// waitPatience is the time limit of everything else that tests wait for.
	waitPatience = 4 * time.Minute
	pause        = 200 * time.Millisecond
)

// command is a program that a test runs. It inherits the environment of the test, except the variables that configure
// kcpctl.
type command struct {
	name  string
	args  []string
	env   []string
	stdin string
	// limit is the time limit. Zero means patience.
	limit time.Duration
}

// result is the result of a command. stdout may contain keys and is never printed.
type result struct {
	line           string
	stdout, stderr string
	code           int
}

func (c command) String() string { return filepath.Base(c.name) + " " + strings.Join(c.args, " ") }

// prepare returns the command as a process that ends with the context.
func (c command) prepare(ctx context.Context) (*exec.Cmd, context.CancelFunc) {
	if c.limit == 0 {
		c.limit = patience
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("not done after %s", c.limit))
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KCPCTL_") }), c.env...)
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.WaitDelay = time.Second
	return cmd, cancel
}

// run runs the command and waits until it ends.
func (c command) run(ctx context.Context, t *testing.T) result {
	t.Helper()
	cmd, cancel := c.prepare(ctx)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, "%s: %v", c, err)
	r := result{c.String(), stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if r.code < 0 {
		r.stderr += fmt.Sprintf("\n%v: %v", err, context.Cause(ctx))
	}
	return r
}

// ok requires that the command has succeeded.
func (r result) ok(t *testing.T) result {
	t.Helper()
	require.Zero(t, r.code, "%s\n%s", r.line, r.stderr)
	return r
}

// refused requires that the command has failed with an exit code. Its error or its hint must contain the facts: the
// objects that it is about, and the command or the flag that helps.
func (r result) refused(t *testing.T, code int, facts ...string) {
	t.Helper()
	require.Equal(t, code, r.code, "%s\n%s", r.line, r.stderr)
	for _, fact := range facts {
		require.Contains(t, r.stderr, fact, r.line)
	}
}

// changed requires that the command has reported a number of changes.
func (r result) changed(t *testing.T, n int) {
	t.Helper()
	require.Regexp(t, fmt.Sprintf(`(^|[^0-9])%d changes?\b`, n), r.stderr, r.line)
}

// eventually retries something until it succeeds. It fails the test after waitPatience.
func eventually(ctx context.Context, t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, waitPatience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			require.NoError(t, err)
		case <-time.After(pause):
		}
	}
}

// machine is held by the test that runs kcp on this machine. Two setups that start at once could choose the same ports:
// each has its own state directory. One here and one on a node are also what two cores bear.
var machine sync.Mutex

// onMachine runs a test that runs kcp on this machine beside those on the node.
func onMachine(t *testing.T) {
	t.Helper()
	t.Parallel()
	began := time.Now()
	machine.Lock()
	t.Cleanup(machine.Unlock)
	t.Logf("other tests on this machine took the first %.0fs", time.Since(began).Seconds())
}

// step runs a part of a test. If it fails, the parts after it are skipped.
func step(t *testing.T, name string, do func(t *testing.T)) {
	t.Helper()
	if !t.Run(name, do) {
		t.FailNow()
	}
}

// given returns an environment variable that run.sh sets.
func given(t *testing.T, name string) string {
	t.Helper()
	require.NotEmpty(t, os.Getenv(name), "%s is not set: start the tests with make e2e", name)
	return os.Getenv(name)
}

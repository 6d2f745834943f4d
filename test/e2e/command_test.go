//go:build e2e

// Package e2e does with a real kcp what users do, as they do it: with kcpctl and kubectl, on a Kubernetes cluster and on this
// machine. run.sh says what it needs, and makes it.
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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// patience is how long a command may take, and whatever tests wait for.
	patience = 8 * time.Minute
	pause    = 200 * time.Millisecond
)

// command is a program that a test runs. Its environment is that of the test, but for what configures kcpctl.
type command struct {
	name  string
	args  []string
	env   []string
	stdin string
	// limit is how long it may take; zero is patience.
	limit time.Duration
}

// result is how a command has ended. stdout may hold keys, and is never printed.
type result struct {
	line           string
	stdout, stderr string
	code           int
}

func (c command) String() string { return filepath.Base(c.name) + " " + strings.Join(c.args, " ") }

// prepare makes a process of the command, which does not outlive the context.
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

// run runs the command to its end.
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

// ok demands that the command has done what it was told to.
func (r result) ok(t *testing.T) result {
	t.Helper()
	require.Zero(t, r.code, "%s\n%s", r.line, r.stderr)
	return r
}

// refused demands that the command has failed with a code, and that it has told why and what to do.
func (r result) refused(t *testing.T, code int, says ...string) {
	t.Helper()
	require.Equal(t, code, r.code, "%s\n%s", r.line, r.stderr)
	for _, s := range says {
		require.Contains(t, r.stderr, s, r.line)
	}
}

// eventually tries something until it works, at most for as long as patience lasts.
func eventually(ctx context.Context, t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// step runs a part of a test without which the parts after it make no sense.
func step(t *testing.T, name string, do func(t *testing.T)) {
	t.Helper()
	if !t.Run(name, do) {
		t.FailNow()
	}
}

// given is an environment variable that run.sh sets.
func given(t *testing.T, name string) string {
	t.Helper()
	require.NotEmpty(t, os.Getenv(name), "%s is not set: start the tests with make e2e", name)
	return os.Getenv(name)
}

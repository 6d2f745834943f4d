// Package framework has what the end-to-end tests share: commands as users type them, setups on clusters and on this
// machine, the fleet of workloads, agents, and waits. run.sh provides what the tests need.
package framework

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
	// Patience is the time limit of a command: up takes 40 seconds alone, and three minutes beside other tests.
	Patience = 15 * time.Minute
	// waitPatience is the time limit of everything else that tests wait for.
	waitPatience = 4 * time.Minute
	Pause        = 200 * time.Millisecond
)

// Command is a program that a test runs. It inherits the environment of the test, except the variables that configure
// kcpctl.
type Command struct {
	Name  string
	Args  []string
	Env   []string
	Stdin string
	// Limit is the time limit. Zero means patience.
	Limit time.Duration
}

// Result is the result of a command. stdout may contain keys and is never printed.
type Result struct {
	Line           string
	Stdout, Stderr string
	Code           int
}

func (c Command) String() string { return filepath.Base(c.Name) + " " + strings.Join(c.Args, " ") }

// Prepare returns the command as a process that ends with the context.
func (c Command) Prepare(ctx context.Context) (*exec.Cmd, context.CancelFunc) {
	if c.Limit == 0 {
		c.Limit = Patience
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Limit, fmt.Errorf("not done after %s", c.Limit))
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KCPCTL_") }), c.Env...)
	cmd.Stdin = strings.NewReader(c.Stdin)
	cmd.WaitDelay = time.Second
	return cmd, cancel
}

// Run runs the command and waits until it ends.
func (c Command) Run(ctx context.Context, t *testing.T) Result {
	t.Helper()
	cmd, cancel := c.Prepare(ctx)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, "%s: %v", c, err)
	r := Result{c.String(), stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if r.Code < 0 {
		r.Stderr += fmt.Sprintf("\n%v: %v", err, context.Cause(ctx))
	}
	return r
}

// OK requires that the command has succeeded.
func (r Result) OK(t *testing.T) Result {
	t.Helper()
	require.Zero(t, r.Code, "%s\n%s", r.Line, r.Stderr)
	return r
}

// Refused requires that the command has failed with an exit code. Its error or its hint must contain the facts: the
// objects that it is about, and the command or the flag that helps.
func (r Result) Refused(t *testing.T, code int, facts ...string) {
	t.Helper()
	require.Equal(t, code, r.Code, "%s\n%s", r.Line, r.Stderr)
	for _, fact := range facts {
		require.Contains(t, r.Stderr, fact, r.Line)
	}
}

// Changed requires that the command has reported a number of changes.
func (r Result) Changed(t *testing.T, n int) {
	t.Helper()
	require.Regexp(t, fmt.Sprintf(`(^|[^0-9])%d changes?\b`, n), r.Stderr, r.Line)
}

// Eventually retries something until it succeeds. It fails the test after waitPatience.
func Eventually(ctx context.Context, t *testing.T, try func() error) {
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
		case <-time.After(Pause):
		}
	}
}

// Step runs a part of a test. If it fails, the parts after it are skipped.
func Step(t *testing.T, name string, do func(t *testing.T)) {
	t.Helper()
	if !t.Run(name, do) {
		t.FailNow()
	}
}

// Given returns an environment variable that run.sh sets.
func Given(t *testing.T, name string) string {
	t.Helper()
	require.NotEmpty(t, os.Getenv(name), "%s is not set: start the tests with make e2e", name)
	return os.Getenv(name)
}

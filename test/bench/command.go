package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// command is a program with its arguments.
type command struct {
	name   string
	args   []string
	env    []string // in addition to the environment of this process
	stdin  string
	stdout io.Writer // nil discards
}

// usage is the resource usage of a process.
type usage struct {
	started time.Time
	wall    time.Duration
	cpu     time.Duration // user and system
	// rss is the peak resident memory, in bytes.
	rss int64
}

// patience is the time limit of the cleanup of an interrupted process.
const patience = time.Minute

// run runs the command in its own process group, so that an interrupt reaches it once, from this program, with its
// children.
func (c command) run(ctx context.Context) (usage, error) {
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = patience
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), c.stdout, &stderr
	u := usage{started: time.Now()}
	err := cmd.Start()
	if err == nil {
		peak := samplePeak(cmd.Process.Pid)
		err = cmd.Wait()
		u.rss = peak()
	}
	u.wall = time.Since(u.started)
	if err != nil {
		return u, fmt.Errorf("%s %s: %w: %s", filepath.Base(c.name), strings.Join(c.args, " "), err, ends(stderr.String()))
	}
	u.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	// Maxrss is the more exact one, but it is at least the memory of this program, of which the process began as a
	// copy.
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && r.Maxrss<<10 > ownPeak() {
		u.rss = r.Maxrss << 10
	}
	return u, nil
}

// output runs the command and returns what it printed.
func (c command) output(ctx context.Context) (string, error) {
	var out bytes.Buffer
	c.stdout = &out
	_, err := c.run(ctx)
	return strings.TrimSpace(out.String()), err
}

// testbed returns a path that the testbed prints. The testbed builds what is missing.
func testbed(ctx context.Context, args ...string) (string, error) {
	return command{name: "go", args: append([]string{"run", "./test/testbed"}, args...)}.output(ctx)
}

// detached returns a context for cleanup, which continues when ctx has ended, with a time limit.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
}

// ends returns the first and the last lines of an output: the reason of a panic is at the top, of other errors at the
// end.
func ends(output string) string {
	const top, bottom = 5, 10
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if n := len(lines); n > top+bottom {
		lines = slices.Concat(lines[:top], []string{"..."}, lines[n-bottom:])
	}
	return strings.Join(lines, "\n")
}

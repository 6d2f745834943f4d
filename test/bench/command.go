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

// command is a program to run to its end.
type command struct {
	name   string
	args   []string
	env    []string // on top of ours
	stdin  string
	stdout io.Writer // nil discards
}

// usage is what a process took.
type usage struct {
	started time.Time
	wall    time.Duration
	cpu     time.Duration // user and system
	// rss is the most memory that was resident at once, in bytes. Linux counts from what this program itself held when it
	// started the process, so a figure near its own says only that the process took no more.
	rss int64
}

// patience is how long a process may take to clean up when it is interrupted.
const patience = time.Minute

// run runs the command in a process group of its own, so that it is interrupted once, by us, and with its children.
func (c command) run(ctx context.Context) (usage, error) {
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = patience
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), c.stdout, &stderr
	u := usage{started: time.Now()}
	err := cmd.Run()
	u.wall = time.Since(u.started)
	if err != nil {
		return u, fmt.Errorf("%s %s: %w: %s", filepath.Base(c.name), strings.Join(c.args, " "), err, ends(stderr.String()))
	}
	u.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
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

// testbed asks the testbed for a path. It builds what is missing.
func testbed(ctx context.Context, args ...string) (string, error) {
	return command{name: "go", args: append([]string{"run", "./test/testbed"}, args...)}.output(ctx)
}

// detached is for cleaning up: it goes on when ctx has ended, but not for ever.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
}

// ends is the first and the last lines of an output: a panic says at the top what it is, all else at the end.
func ends(output string) string {
	const top, bottom = 5, 10
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if n := len(lines); n > top+bottom {
		lines = slices.Concat(lines[:top], []string{"..."}, lines[n-bottom:])
	}
	return strings.Join(lines, "\n")
}

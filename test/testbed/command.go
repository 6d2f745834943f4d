package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// command is a program with its arguments.
type command struct {
	name  string
	args  []string
	dir   string
	env   []string // in addition to the environment of this process
	stdin string
}

// run runs the command and returns its standard output. An error has the end of its standard error.
func (c command) run(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(c.name), strings.Join(c.args, " "), err, lastLines(stderr.String(), 20))
	}
	return stdout.String(), nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll calls done every few milliseconds until it succeeds. After limit it returns the last error of done.
func poll(ctx context.Context, limit time.Duration, done func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		last := done(limited)
		if last == nil {
			return nil
		}
		if errors.Is(last, errGone) {
			return last
		}
		if sleep(limited, 50*time.Millisecond) != nil {
			return cmp.Or(ctx.Err(), fmt.Errorf("not within %s: %w", limit, last))
		}
	}
}

// writeFile replaces a file atomically.
func writeFile(file string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".tmp", content, mode); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

package main

import (
	"bytes"
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

// command is a program to run to its end.
type command struct {
	name  string
	args  []string
	dir   string
	env   []string // on top of ours
	stdin string
}

// run returns what the command wrote to its standard output; an error holds what it wrote to the other.
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

// lock takes the lock file, waiting while another process holds it, and returns what gives it back.
func lock(ctx context.Context, file string) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil // closing unlocks
		case !errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", file, err)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			f.Close()
			return nil, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll asks done every few milliseconds until it says yes, at most for limit; then the error is what done said last.
func poll(ctx context.Context, limit time.Duration, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		last := done(ctx)
		if last == nil {
			return nil
		}
		if errors.Is(last, errGone) {
			return last
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("not within %s: %w", limit, last)
		}
	}
}

// writeFile replaces a file in one step, so that no reader sees half of it.
func writeFile(file string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".tmp", content, mode); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

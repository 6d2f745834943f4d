package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// identity tells a process from all others, also from one that gets its pid later.
type identity struct {
	PID int `json:"pid"`
	// Start is when it started, in the words of the operating system.
	Start string `json:"start"`
}

// identify returns the identity of a running process.
func identify(pid int) (identity, error) {
	start, err := startOf(pid)
	return identity{pid, start}, err
}

// alive tells whether the process still runs. A zombie does not.
func (i identity) alive() bool {
	if i.PID <= 0 || i.Start == "" {
		return false
	}
	start, err := startOf(i.PID)
	return err == nil && start == i.Start
}

// signal sends a signal, but to no other process that has got the pid meanwhile: os.FindProcess pins the process where the
// system can do so (a pidfd on Linux), before its identity is checked.
func (i identity) signal(sig os.Signal) error {
	p, err := os.FindProcess(i.PID)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	if !i.alive() {
		return os.ErrProcessDone
	}
	return p.Signal(sig)
}

const (
	pollInterval = 20 * time.Millisecond
	// killTime is how long a killed process may take to go, in uninterruptible input or output for instance.
	killTime = 10 * time.Second
)

// stop ends a process: politely, and after the grace period for good.
func (i identity) stop(ctx context.Context, grace time.Duration) error {
	for _, step := range []struct {
		signal os.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, killTime}} {
		if err := i.signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop process %d: %w", i.PID, err)
		}
		if gone, err := i.waitGone(ctx, step.wait); gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("process %d does not end", i.PID)
}

func (i identity) waitGone(ctx context.Context, atMost time.Duration) (bool, error) {
	over := time.After(atMost)
	for i.alive() {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-over:
			return false, nil
		case <-time.After(pollInterval):
		}
	}
	reap(i.PID)
	return true, nil
}

// exit is how a process ended.
type exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
}

func (e exit) String() string {
	if e.Signal != "" {
		return "ended by the signal " + e.Signal
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

// reap takes note of the end of a child of this process; nil if it has not ended or is no child.
func reap(pid int) *exit {
	var ws syscall.WaitStatus
	for {
		got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || got != pid {
			return nil
		}
		if ws.Signaled() {
			return &exit{Code: -1, Signal: ws.Signal().String()}
		}
		return &exit{Code: ws.ExitStatus()}
	}
}

// running is a process as a scan of the machine finds it.
type running struct {
	pid  int
	argv []string
}

// runs tells whether the process is a program that was started with the files of a folder: that is how a process is found
// whose pid nobody had the time to write down.
func (p running) runs(program, dir string) bool {
	if len(p.argv) == 0 || filepath.Base(p.argv[0]) != program {
		return false
	}
	for _, arg := range p.argv[1:] {
		if strings.Contains(arg, dir+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// find returns the processes that run a program with the files of a folder.
func find(program, dir string) ([]identity, error) {
	all, err := processes()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []identity
	for _, p := range all {
		if !p.runs(program, dir) {
			continue
		}
		if id, err := identify(p.pid); err == nil {
			out = append(out, id)
		}
	}
	return out, nil
}

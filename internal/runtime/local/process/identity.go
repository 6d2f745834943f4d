// Package process starts, identifies, finds and stops processes that outlive kcpctl.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Identity identifies a process, also after another process has got its PID.
type Identity struct {
	PID int `json:"pid"`
	// Start is when the process started, in the format of the operating system: see startTime.
	Start string `json:"start"`
}

// Identify returns the identity of a running process.
func Identify(pid int) (Identity, error) {
	start, err := startTime(pid)
	return Identity{pid, start}, err
}

// Alive reports whether the process is running. A zombie is not.
func (i Identity) Alive() bool {
	if i.PID <= 0 || i.Start == "" {
		return false
	}
	start, err := startTime(i.PID)
	return err == nil && start == i.Start
}

// signal sends a signal to the process, and to no other that has got its PID meanwhile: os.FindProcess pins the process
// where the system supports it (a pidfd on Linux), before its identity is checked.
func (i Identity) signal(sig os.Signal) error {
	p, err := os.FindProcess(i.PID)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	if !i.Alive() {
		return os.ErrProcessDone
	}
	return p.Signal(sig)
}

const (
	pollInterval = 20 * time.Millisecond
	// KillTimeout is how long a killed process may take to end, for instance in uninterruptible input or output.
	KillTimeout = 10 * time.Second
)

// Stop ends the process: with SIGTERM, and after the grace period with SIGKILL. After it the ports of the process are
// free.
func (i Identity) Stop(ctx context.Context, grace time.Duration) error {
	for _, step := range []struct {
		signal  os.Signal
		timeout time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, KillTimeout}} {
		if err := i.signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop process %d: %w", i.PID, err)
		}
		if ended, err := i.waitEnded(ctx, step.timeout); ended || err != nil {
			return err
		}
	}
	return fmt.Errorf("process %d is still running %s after SIGKILL", i.PID, KillTimeout)
}

// End returns how a process ended that is not Alive. It waits until the kernel has ended all threads, because there is
// no exit status before. It returns nil if the process is not a child of this one.
func (i Identity) End(ctx context.Context) *Exit {
	_ = wait.PollUntilContextTimeout(ctx, pollInterval, KillTimeout, true,
		func(context.Context) (bool, error) { return i.ended(), nil })
	return Reap(i.PID)
}

// waitEnded waits until the process has ended with all its threads, and reports whether it has.
func (i Identity) waitEnded(ctx context.Context, timeout time.Duration) (bool, error) {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(context.Context) (bool, error) {
		return i.ended(), nil
	})
	switch {
	case err == nil:
		Reap(i.PID)
		return true, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	}
	return false, nil
}

// Exit is how a process ended.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
}

func (e Exit) String() string {
	if e.Signal != "" {
		return "ended by signal: " + e.Signal
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

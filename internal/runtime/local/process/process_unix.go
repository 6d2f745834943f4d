//go:build unix

package process

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// Reap collects the exit status of a child of this process. It returns nil if the process is running, or is not a
// child.
func Reap(pid int) *Exit {
	if pid <= 0 {
		return nil // the kernel would take any child for it
	}
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
			return &Exit{Code: -1, Signal: ws.Signal().String()}
		}
		return &Exit{Code: ws.ExitStatus()}
	}
}

// ownSession makes a process the first of its session: closing the terminal or Ctrl-C does not reach it.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// closeOnExec keeps started processes from inheriting files that the parent of kcpctl left open, such as the lock of a
// shell script.
func closeOnExec() error {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

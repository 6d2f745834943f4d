package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// exiting is the kernel's flag of a process that is ending: its threads may still hold its sockets and files
// (PF_EXITING).
const exiting = 0x4

// status is the state of a process in the kernel.
type status struct {
	state, start string
	flags        uint64
	threads      int
}

// statusOf reads /proc/PID/stat. It fails with fs.ErrNotExist if there is no such process.
func statusOf(pid int) (status, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return status{}, err
	}
	// The second field is the program's name in parentheses, and may contain anything. The third is the state, the
	// ninth the flags, the twentieth the number of threads, the twenty-second the start time.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return status{}, fmt.Errorf("read /proc/%d/stat: unknown format", pid)
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	threads, err2 := strconv.Atoi(fields[17])
	if err := errors.Join(err, err2); err != nil {
		return status{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	return status{fields[0], fields[19], flags, threads}, nil
}

// zombie reports whether the process has ended and its parent does not know it yet. Threads of it may be left.
func (s status) zombie() bool { return s.state == "Z" || s.state == "X" }

// startTime returns when a process started: the ID of the boot, and clock ticks since that boot (proc(5), field
// starttime). It fails with fs.ErrNotExist for a process that has ended or is ending.
//
// gopsutil is not used here: its create time is milliseconds since the epoch, computed from the ticks and the wall
// clock's boot time, so a step of the clock would change the identity of a running process. It also reports an ending
// process as running.
func startTime(pid int) (string, error) {
	s, err := statusOf(pid)
	if err != nil {
		return "", err
	}
	if s.zombie() || s.flags&exiting != 0 {
		return "", fs.ErrNotExist
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + "/" + s.start, nil
}

// ended reports whether the process has ended with all its threads, so that its ports and files are free. While the
// kernel ends them, Alive is false already.
func (i Identity) ended() bool {
	s, err := statusOf(i.PID)
	return err != nil || !strings.HasSuffix(i.Start, "/"+s.start) || s.zombie() && s.threads <= 1
}

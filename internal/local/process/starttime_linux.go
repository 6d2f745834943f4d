package process

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// exiting is the kernel's flag of a process that is ending: its threads may still hold its sockets and files
// (PF_EXITING).
const exiting = 0x4

// startTime returns when a process started: the ID of the boot, and clock ticks since that boot (proc(5), field
// starttime). It fails with fs.ErrNotExist for a process that has ended or is ending.
//
// gopsutil is not used here: its create time is milliseconds since the epoch, computed from the ticks and the wall
// clock's boot time, so a step of the clock would change the identity of a running process. It also reports an ending
// process as running.
func startTime(pid int) (string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	// The second field is the program's name in parentheses, and may contain anything. The third is the state, the
	// ninth the flags, the twenty-second the start time.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("read /proc/%d/stat: unknown format", pid)
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	if err != nil {
		return "", fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	if state := fields[0]; state == "Z" || state == "X" || flags&exiting != 0 {
		return "", fs.ErrNotExist
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}

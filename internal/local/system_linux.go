package local

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// exiting is the kernel's flag for a process that is ending: its threads may still hold what it had open (PF_EXITING).
const exiting = 0x4

// startOf says when a process started: in clock ticks since the boot that it names (proc(5), field starttime). One that has
// ended, or is about to, does not exist.
func startOf(pid int) (string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	// The second field is the program's name in parentheses and may contain anything. The third is the state, the ninth the
	// flags, the twenty-second the start.
	_, rest, ok := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
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

// processes lists the processes of this machine that we may look at.
func processes() ([]running, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []running
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(cmdline) == 0 {
			continue // it has ended, or is the kernel's
		}
		out = append(out, running{pid, strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")})
	}
	return out, nil
}

// portOwner returns the process that listens on a TCP port, and 0 if that cannot be told: it may be another user's.
func portOwner(port int32) int {
	sockets := listeners(port)
	if len(sockets) == 0 {
		return 0
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && sockets[target] {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			return pid
		}
	}
	return 0
}

// listeners are the sockets that listen on a TCP port, as the links of their owners name them.
func listeners(port int32) map[string]bool {
	const stateListen = "0A"
	sockets := map[string]bool{}
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == stateListen && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	return sockets
}

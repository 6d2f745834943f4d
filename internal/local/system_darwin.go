package local

import (
	"bytes"
	enc "encoding/binary"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

const stateZombie = 5 // SZOMB in sys/proc.h

// startOf says when a process started, to the microsecond.
func startOf(pid int) (string, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", err
	}
	if int(p.Proc.P_pid) != pid || p.Proc.P_stat == stateZombie {
		return "", fs.ErrNotExist
	}
	return fmt.Sprintf("%d.%06d", p.Proc.P_starttime.Sec, p.Proc.P_starttime.Usec), nil
}

// processes lists the processes of this machine that we may look at.
func processes() ([]running, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	var out []running
	for _, p := range all {
		pid := int(p.Proc.P_pid)
		raw, err := unix.SysctlRaw("kern.procargs2", pid)
		if err != nil {
			continue // it has ended, or is another user's
		}
		out = append(out, running{pid, parseArgs(raw)})
	}
	return out, nil
}

// parseArgs takes the arguments out of what the kernel keeps of a process: their number, the program's path, padding, the
// arguments, the environment.
func parseArgs(raw []byte) []string {
	if len(raw) < 4 {
		return nil
	}
	n := int(enc.NativeEndian.Uint32(raw))
	_, rest, _ := bytes.Cut(raw[4:], []byte{0})
	all := strings.Split(string(bytes.TrimLeft(rest, "\x00")), "\x00")
	return all[:min(n, len(all))]
}

// portOwner cannot tell who listens on a port: macOS has no call for it that works without privileges.
func portOwner(int32) int { return 0 }

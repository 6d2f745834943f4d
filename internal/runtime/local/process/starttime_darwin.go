package process

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB in sys/proc.h

// startTime returns when a process started, to the microsecond. The kernel keeps that time; gopsutil cuts it to
// milliseconds. It fails with fs.ErrNotExist for a process that has ended.
func startTime(pid int) (string, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", err
	}
	if int(p.Proc.P_pid) != pid || p.Proc.P_stat == zombie {
		return "", fs.ErrNotExist
	}
	return fmt.Sprintf("%d.%06d", p.Proc.P_starttime.Sec, p.Proc.P_starttime.Usec), nil
}

// ended reports whether the process has ended.
func (i Identity) ended() bool { return !i.Alive() }

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"
)

// Info is an entry of the process table.
type Info struct {
	PID int
	// Args are the arguments with which the process was started, and before them its program.
	Args []string
}

// List returns the processes of this machine whose arguments can be read.
func List() ([]Info, error) {
	ctx := ownProc()
	pids, err := process.PidsWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []Info
	for _, pid := range pids {
		args, err := (&process.Process{Pid: pid}).CmdlineSliceWithContext(ctx)
		if err == nil && len(args) > 0 { // else it has ended, or belongs to the kernel or to another user
			out = append(out, Info{int(pid), args})
		}
	}
	return out, nil
}

// ownProc makes gopsutil read /proc, and not the /proc of another PID namespace that $HOST_PROC leads to.
func ownProc() context.Context {
	return context.WithValue(context.Background(), common.EnvKey, common.EnvMap{common.HostProcEnvKey: "/proc"})
}

// Runs reports whether the process is a program that was started with a file below a directory of this machine, as the
// value of a flag or as an argument.
func (i Info) Runs(program, dir string) bool {
	if filepath.Base(i.Args[0]) != program {
		return false
	}
	below := dir + string(filepath.Separator)
	for _, arg := range i.Args[1:] {
		if strings.HasPrefix(arg, below) || strings.Contains(arg, "="+below) {
			return i.shares(dir)
		}
	}
	return false
}

// shares reports whether the path of a directory leads to the same one for the process, or to none for it and for us. A
// process in a container can have its own directory at the path. Without /proc, or without the permission to see
// it, the path decides.
func (i Info) shares(dir string) bool {
	there, errThere := os.Stat(fmt.Sprintf("/proc/%d/root%s", i.PID, dir))
	if errThere != nil && !errors.Is(errThere, fs.ErrNotExist) {
		return true
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root", i.PID)); err != nil {
		return true
	}
	here, errHere := os.Stat(dir)
	if errThere != nil || errHere != nil {
		return errThere != nil && errHere != nil
	}
	return os.SameFile(there, here)
}

// Find returns the processes that run a program with files below a directory. This is how a process is found whose PID
// could not be recorded, because kcpctl was killed.
func Find(program, dir string) ([]Identity, error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	var out []Identity
	for _, p := range all {
		if !p.Runs(program, dir) {
			continue
		}
		if id, err := Identify(p.PID); err == nil {
			out = append(out, id)
		}
	}
	return out, nil
}

// Listener returns the PID of a process that listens on a TCP port. It returns 0 if there is none, or if this user
// cannot see it: processes of other users can be hidden.
func Listener(port int32) int {
	const listening = "LISTEN"
	sockets, err := net.ConnectionsWithContext(ownProc(), "tcp")
	if err != nil {
		return 0
	}
	for _, s := range sockets {
		if s.Status == listening && s.Laddr.Port == uint32(port) && s.Pid != 0 {
			return int(s.Pid)
		}
	}
	return 0
}

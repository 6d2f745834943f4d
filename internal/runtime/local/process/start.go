package process

import (
	"errors"
	"os"
	"syscall"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Command is a process to start.
type Command struct {
	// Path is the program.
	Path string
	Args []string
	// Env is the whole environment, Dir the working directory.
	Env []string
	Dir string
	// Output receives standard output and standard error.
	Output *os.File
}

// Start starts a process that outlives this one. The exit status is nil unless the process has ended already.
func Start(c Command) (Identity, *Exit, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return Identity{}, nil, err
	}
	defer null.Close()
	if err := closeOnExec(); err != nil {
		return Identity{}, nil, err
	}
	proc, err := os.StartProcess(c.Path, append([]string{c.Path}, c.Args...), &os.ProcAttr{
		Dir: c.Dir, Env: c.Env, Files: []*os.File{null, c.Output, c.Output},
		Sys: ownSession(),
	})
	if err != nil {
		return Identity{}, nil, startError(err, c.Path)
	}
	id, err := Identify(proc.Pid)
	if err != nil {
		return id, Reap(proc.Pid), proc.Release()
	}
	return id, nil, proc.Release()
}

func startError(err error, path string) error {
	hint := ""
	if errors.Is(err, syscall.ENOEXEC) || errors.Is(err, syscall.Errno(86)) { // EBADARCH of macOS
		hint = "check that it is built for this operating system and architecture, or pass another --kcp-bin-dir"
	}
	return clierr.New(clierr.Failed, hint, "start %s: %w", path, err)
}

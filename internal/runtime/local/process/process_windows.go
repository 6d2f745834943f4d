package process

import (
	"errors"
	"syscall"
)

// errWindows is the error of everything here: kcp has no servers for Windows.
var errWindows = errors.New("processes that outlive kcpctl run on Linux and macOS only")

func startTime(int) (string, error) { return "", errWindows }

// ended reports whether the process has ended.
func (i Identity) ended() bool { return !i.Alive() }

// Reap returns nil: there are no children.
func Reap(int) *Exit { return nil }

func ownSession() *syscall.SysProcAttr { return nil }

// closeOnExec fails, so no process is started.
func closeOnExec() error { return errWindows }

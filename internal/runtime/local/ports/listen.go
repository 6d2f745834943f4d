package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

const (
	loopback     = "127.0.0.1"
	pollInterval = 20 * time.Millisecond
	dialTimeout  = time.Second
)

// Address is the address at which a port of this machine is dialed.
func Address(port int32) string { return net.JoinHostPort(loopback, strconv.Itoa(int(port))) }

// Free reports whether this machine can listen on a port. It listens for a moment, so only commands that start
// processes use it.
func Free(port int32) bool {
	l, err := net.Listen("tcp", Address(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// Listening reports whether a process listens on a port. It connects, so it never takes a port from a process that is
// starting.
func Listening(port int32) bool {
	conn, err := net.DialTimeout("tcp", Address(port), dialTimeout)
	if err == nil {
		_ = conn.Close()
		return true
	}
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, syscall.ECONNRESET)
}

// WaitFree waits until the ports of a component are free that a dead process still holds: a process that was killed
// counts as dead while the kernel ends its threads, which hold its sockets. Ports of live processes are not waited for.
func (s *Set) WaitFree(ctx context.Context, id topology.ID) {
	_ = wait.PollUntilContextTimeout(ctx, pollInterval, process.KillTimeout, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(s.namesOf(id), func(name string) bool { return s.heldByDead(s.Port(name)) }), nil
	})
}

// heldByDead reports whether something listens on a port, and no live process is known to.
func (s *Set) heldByDead(port int32) bool {
	if !s.Listening(port) {
		return false
	}
	pid := process.Listener(port)
	if pid == 0 {
		return true
	}
	_, err := process.Identify(pid)
	return err != nil
}

// Taken describes the ports of a component on which a process listens that does not belong to this setup. Ports that
// are not chosen yet are ignored: up chooses free ones.
func (s *Set) Taken(id topology.ID) []string {
	var out []string
	for _, name := range s.namesOf(id) {
		port := s.Port(name)
		if !s.Listening(port) {
			continue
		}
		if owner, own := s.owner(port); !own {
			out = append(out, fmt.Sprintf("port %d of %s is taken by %s", port, name, owner))
		}
	}
	return out
}

// owner names the process that listens on a port, without its arguments, which may contain secrets. It also reports
// whether the process belongs to this setup.
func (s *Set) owner(port int32) (name string, own bool) {
	unknown := fmt.Sprintf("another process (find it with lsof -nP -iTCP:%d -sTCP:LISTEN)", port)
	pid := process.Listener(port)
	all, err := process.List()
	if err != nil || pid == 0 {
		return unknown, false
	}
	for _, p := range all {
		if p.PID == pid {
			return fmt.Sprintf("%s (pid %d)", p.Args[0], pid), p.Runs(filepath.Base(p.Args[0]), filepath.Dir(s.path))
		}
	}
	return unknown, false
}

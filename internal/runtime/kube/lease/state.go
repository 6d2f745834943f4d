package lease

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/kcpctl/kcpctl/internal/kit/machine"
)

// Holder is a run that holds the lock.
type Holder struct {
	Host string
	PID  int
	// Machine is the machine, and the PID namespace on it, that the PID belongs to (see package machine). Empty is
	// unknown.
	Machine string
	User    string
}

// String is the holder's identity in a Lease: host/pid@machine/user.
func (h Holder) String() string { return fmt.Sprintf("%s/%d@%s/%s", h.Host, h.PID, h.Machine, h.User) }

func parseHolder(s string) Holder {
	host, rest, _ := strings.Cut(s, "/")
	process, user, _ := strings.Cut(rest, "/")
	pid, machine, _ := strings.Cut(process, "@")
	n, err := strconv.Atoi(pid)
	if err != nil {
		return Holder{Host: s}
	}
	return Holder{Host: host, PID: n, Machine: machine, User: user}
}

// state is the state of a Lease for a run that wants it.
type state int

const (
	free    state = iota // no run holds it, or the holder is dead
	held                 // the holder is alive
	unknown              // the holder may be dead
)

// observation is the content of a Lease, and since when it has been so.
type observation struct {
	holder, renewed string
	since           time.Time
}

func observe(spec coordinationv1.LeaseSpec, now time.Time) observation {
	o := observation{since: now}
	if spec.HolderIdentity != nil {
		o.holder = *spec.HolderIdentity
	}
	if spec.RenewTime != nil {
		o.renewed = spec.RenewTime.String()
	}
	return o
}

// leaseState compares a Lease with its first observation. A renewal since then proves that the holder is alive. The
// holder is dead if it has not renewed the Lease for its whole duration, or if its process is gone and was one of this
// very machine and PID namespace. Clocks of different machines are never compared.
func leaseState(
	spec coordinationv1.LeaseSpec, first observation, now time.Time, machine string, alive func(pid int) bool,
) state {
	o := observe(spec, now)
	if o.holder == "" {
		return free
	}
	if ended(o.holder, machine, alive) {
		return free
	}
	if o.holder != first.holder || o.renewed != first.renewed {
		return held
	}
	duration := Duration
	if spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	if now.Sub(first.since) >= duration {
		return free
	}
	return unknown
}

// Ended reports whether the holder of a Lease, as Holder.String names it, is a process of this machine and PID
// namespace that has ended. It is false if that is not certain.
func Ended(holder string) bool { return ended(holder, machine.ID(), isAlive) }

func ended(holder, machine string, alive func(pid int) bool) bool {
	h := parseHolder(holder)
	return h.PID != 0 && h.Machine != "" && h.Machine == machine && !alive(h.PID)
}

// isAlive reports whether a process of this machine runs.
func isAlive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return !errors.Is(err, os.ErrProcessDone)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errGone means that a process has ended, so that waiting for it is pointless.
var errGone = errors.New("the process ended")

// process is a long-running process of a node.
type process struct {
	name   string
	argv   []string
	path   string // $PATH; the rest of the environment may have proxies and secrets
	health string // URL that returns 200 when the process serves; empty if it serves as soon as it runs
}

// record identifies a started process. The start time distinguishes it from a later process with the same PID.
type record struct {
	PID   int      `json:"pid"`
	Start uint64   `json:"start"` // clock ticks since the boot, from /proc/<pid>/stat
	Argv  []string `json:"argv"`
}

// parseStat returns the state and the start time in a line of /proc/<pid>/stat. The second field is the program's name
// in parentheses and may itself contain spaces and parentheses.
func parseStat(stat string) (state string, start uint64, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", 0, fmt.Errorf("stat line with %d fields: %q", len(fields), stat)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0], start, err
}

// identify returns the record of a running process.
func identify(pid int) (record, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return record{}, err
	}
	_, start, err := parseStat(string(stat))
	return record{PID: pid, Start: start}, err
}

// alive reports whether the process of the record runs. A zombie does not.
func (r record) alive() bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(r.PID), "stat"))
	if err != nil {
		return false
	}
	state, start, err := parseStat(string(stat))
	return err == nil && start == r.Start && state != "Z" && state != "X"
}

// end terminates the process, and kills it after the grace period.
func (r record) end(ctx context.Context, grace time.Duration) error {
	handle, err := os.FindProcess(r.PID) // the handle stays valid if the PID is reused
	if err != nil || !r.alive() {
		return nil
	}
	defer handle.Release() //nolint:errcheck // best effort
	if grace > 0 && r.signal(ctx, handle, syscall.SIGTERM, grace) == nil {
		return nil
	}
	return r.signal(ctx, handle, syscall.SIGKILL, 20*time.Second)
}

func (r record) signal(ctx context.Context, handle *os.Process, signal syscall.Signal, wait time.Duration) error {
	if err := handle.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", r.PID, err)
	}
	return poll(ctx, wait, func(context.Context) error {
		if r.alive() {
			return fmt.Errorf("process %d does not end", r.PID)
		}
		return nil
	})
}

// recordFile is in /run, because the start time is relative to the boot.
func (n node) recordFile(name string) string { return filepath.Join(n.run, name+".json") }

func (n node) logFile(name string) string { return filepath.Join(n.state, "log", name+".log") }

// recorded returns the record of a process. Without a record it returns one that is not alive.
func (n node) recorded(name string) record {
	r := record{PID: -1}
	if content, err := os.ReadFile(n.recordFile(name)); err == nil {
		if json.Unmarshal(content, &r) != nil {
			return record{PID: -1}
		}
	}
	return r
}

// ensure starts p unless it runs with the same arguments, waits until it serves, and returns what it did.
func (n node) ensure(ctx context.Context, p process) (string, error) {
	r := n.recorded(p.name)
	did := "runs"
	if r.alive() && !slices.Equal(r.Argv, p.argv) {
		if err := r.end(ctx, 10*time.Second); err != nil {
			return "", err
		}
	}
	if !r.alive() {
		var err error
		if r, err = n.start(p); err != nil {
			return "", err
		}
		did = "started"
	}
	return did, n.awaitHealth(ctx, p, r)
}

// start starts p in its own session, so that it outlives the terminal, and writes its record.
func (n node) start(p process) (record, error) {
	log, err := os.OpenFile(n.logFile(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return record{}, err
	}
	defer log.Close()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, n.state
	cmd.Env = []string{"PATH=" + p.path, "HOME=/root"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return record{}, err
	}
	r, err := identify(cmd.Process.Pid)
	if err != nil {
		return record{}, err
	}
	go cmd.Wait() //nolint:errcheck // reaps the process if it ends before this program
	r.Argv = p.argv
	content, err := json.Marshal(r)
	if err != nil {
		return record{}, err
	}
	return r, writeFile(n.recordFile(p.name), content, 0o600)
}

func (n node) awaitHealth(ctx context.Context, p process, r record) error {
	probe, err := n.prober()
	if err != nil {
		return err
	}
	err = poll(ctx, 2*time.Minute, func(ctx context.Context) error {
		if !r.alive() {
			return errGone
		}
		return probe(ctx, p.health)
	})
	if err != nil {
		content, _ := os.ReadFile(n.logFile(p.name))
		return fmt.Errorf("%w\n%s ends with:\n%s", err, n.logFile(p.name), lastLines(string(content), 10))
	}
	return nil
}

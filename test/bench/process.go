package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processesOf returns the processes with a directory in their arguments. Everything that is started here has its own
// temporary directory, so this finds all its processes, whatever their parent.
func processesOf(dir string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(args, []byte(dir)) {
			continue // it may have ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// residentMemory returns the resident memory of all processes of a directory, in bytes.
func residentMemory(dir string) (int64, error) {
	var sum int64
	for _, pid := range processesOf(dir) {
		kib, err := statusField(pid, "VmRSS:")
		if err != nil {
			return 0, err
		}
		sum += kib << 10
	}
	if sum == 0 {
		return 0, fmt.Errorf("%s has no process", dir)
	}
	return sum, nil
}

// statusField returns a number in /proc/PID/status.
func statusField(pid int, name string) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == name {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s in %s", name, f.Name())
}

// sampleInterval is how often the memory of a process is read.
const sampleInterval = 5 * time.Millisecond

// samplePeak reads the peak resident memory of a process, in bytes, until the returned function is called, which
// returns the last value. The process must have executed its program.
func samplePeak(pid int) func() int64 {
	stop, last := make(chan struct{}), make(chan int64)
	go func() {
		var peak int64
		tick := time.NewTicker(sampleInterval)
		defer tick.Stop()
		for {
			if kib, err := statusField(pid, "VmHWM:"); err == nil { // a process that has ended has none
				peak = kib << 10
			}
			select {
			case <-tick.C:
			case <-stop:
				last <- peak
				return
			}
		}
	}()
	return func() int64 { close(stop); return <-last }
}

// ownPeak is the peak resident memory of this program, in bytes.
func ownPeak() int64 {
	kib, err := statusField(os.Getpid(), "VmHWM:")
	if err != nil {
		return 0
	}
	return kib << 10
}

// killAll kills the processes of a directory, and waits until they have ended.
func killAll(dir string) error {
	for range 500 {
		pids := processesOf(dir)
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("processes of %s still run after SIGKILL: %v", dir, processesOf(dir))
}

// freeAddress returns an address of this machine at which nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

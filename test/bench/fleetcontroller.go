package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fleetController is the process of kcpctl controller.
type fleetController struct {
	*fleetProcess
	heap *heapLog
}

// startFleetController starts a controller. It does not wait until it serves.
func startFleetController(ctx context.Context, b *bench, kcp, dir string) (*fleetController, error) {
	kubeconfig := filepath.Join(dir, "kcp.kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: kcp, contexts: [{name: kcp, context: {cluster: kcp, user: kcp}}],
users: [{name: kcp}], clusters: [{name: kcp, cluster: {server: %q}}]}`, kcp)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	c := &fleetController{&fleetProcess{url: "http://" + address}, &heapLog{rest: b.log}}
	c.Cmd = exec.CommandContext(ctx, b.kcpctl, "controller", "--kubeconfig", kubeconfig, "--workspace", fleetCompute,
		"--health-probe-bind-address", address, "--v", "0")
	c.Env = append(os.Environ(), "HOME="+dir, "GODEBUG=gctrace=1")
	c.Stderr = c.heap
	return c, c.Start()
}

// waiting returns how many objects wait to be scheduled.
func (c *fleetController) waiting(ctx context.Context) (int, error) {
	raw, err := c.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(string(raw), "\nkcpctl_queue_depth ")
	if !found {
		return 0, fmt.Errorf("the controller has no metric kcpctl_queue_depth: it may wait for another one")
	}
	text, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseFloat(text, 64)
	return int(n), err
}

// cpu returns the time of a processor that the controller has needed, in seconds (proc_pid_stat(5)).
func (c *fleetController) cpu() (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return (time.Duration(user+system) * time.Second / 100).Seconds(), err
}

// heapLog reads the lines about garbage collections in the log of a program (Go: package runtime, gctrace), and writes
// the others.
type heapLog struct {
	rest io.Writer
	mu   sync.Mutex
	line []byte
	// live is what the last collection has left of the heap, and peak the largest heap at the end of one, in megabytes.
	live, peak float64
}

// Write implements io.Writer.
func (h *heapLog) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line = append(h.line, p...)
	for {
		line, rest, found := bytes.Cut(h.line, []byte("\n"))
		if !found {
			return len(p), nil
		}
		var before, end, live float64
		if at := bytes.Index(line, []byte(" ms cpu, ")); at >= 0 && bytes.HasPrefix(line, []byte("gc ")) {
			if _, err := fmt.Sscanf(string(line[at:]), " ms cpu, %f->%f->%f MB", &before, &end, &live); err == nil {
				h.live, h.peak = live, max(h.peak, end)
			}
		} else if _, err := fmt.Fprintf(h.rest, "%s\n", line); err != nil {
			return 0, err
		}
		h.line = rest
	}
}

func (h *heapLog) get() (live, peak float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live, h.peak
}

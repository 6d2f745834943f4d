package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fleetController is the process of kcpctl controller.
type fleetController struct {
	*exec.Cmd
	metrics string
}

// startFleetController starts a controller, as a user does. It does not wait until it serves.
func startFleetController(ctx context.Context, b *bench, kcp, dir string) (*fleetController, error) {
	kubeconfig := filepath.Join(dir, "kcp.kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: kcp, contexts: [{name: kcp, context: {cluster: kcp, user: kcp}}],
users: [{name: kcp}], clusters: [{name: kcp, cluster: {server: %q}}]}`, kcp)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	c := &fleetController{metrics: "http://" + address + "/metrics"}
	c.Cmd = exec.CommandContext(ctx, b.kcpctl, "controller", "--kubeconfig", kubeconfig, "--workspace", fleetCompute,
		"--health-probe-bind-address", address, "--v", "0")
	c.Stderr = b.log
	return c, c.Start()
}

// stop ends a controller, which releases its Lease.
func (c *fleetController) stop() error {
	if c == nil {
		return nil
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = c.Wait() // it was stopped
	return nil
}

// waiting returns how many objects wait to be scheduled, or false if the controller does not serve its metrics yet.
func (c *fleetController) waiting(ctx context.Context) (n float64, ok bool) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.metrics, nil)
	if err != nil {
		return 0, false
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, false
	}
	defer answer.Body.Close() //nolint:errcheck // it is read
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if text, is := strings.CutPrefix(lines.Text(), "kcpctl_queue_depth "); is {
			n, err = strconv.ParseFloat(text, 64)
			return n, err == nil
		}
	}
	return 0, false // it waits for its Lease
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

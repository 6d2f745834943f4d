package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// fleetProcess is a process of the fleet: this program again as the simulated kcp, or a controller.
type fleetProcess struct {
	*exec.Cmd
	url string
}

// runFleetProcess is the process of the simulated kcp, if this is that.
func runFleetProcess(ctx context.Context) (is bool, err error) {
	clusters := os.Getenv(fleetEnv)
	if clusters == "" {
		return false, nil
	}
	n, err := strconv.Atoi(clusters)
	if err != nil {
		return true, err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the program that has started it has ended
	}()
	return true, runFleetKCP(ctx, n)
}

// startFleetKCP starts the simulated kcp, and waits until it serves.
func startFleetKCP(ctx context.Context, b *bench, clusters int) (*fleetProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &fleetProcess{Cmd: exec.CommandContext(ctx, self)}
	p.Env = append(os.Environ(), fmt.Sprintf("%s=%d", fleetEnv, clusters))
	p.Stderr = b.log
	if _, err := p.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the simulated kcp did not start: %w", err), p.end(syscall.SIGKILL))
	}
	p.url = strings.TrimSpace(line)
	return p, nil
}

// end ends a process with a signal.
func (p *fleetProcess) end(signal syscall.Signal) error {
	if err := p.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.Wait() // it was stopped
	return nil
}

// get returns the answer to a request.
func (p *fleetProcess) get(ctx context.Context, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	raw, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, answer.Status, raw)
	}
	return raw, err
}

// tell returns the state of the simulated kcp.
func (p *fleetProcess) tell(ctx context.Context) (out fleetState, _ error) {
	raw, err := p.get(ctx, "/control/state")
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(raw, &out)
}

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
)

// fleetProcess is this program again, as another process of the fleet.
type fleetProcess struct {
	*exec.Cmd
	url string
}

// runFleetProcess does what a process of the fleet does, if this is one.
func runFleetProcess(ctx context.Context) (is bool, err error) {
	role := strings.Fields(os.Getenv(fleetEnv))
	if len(role) < 2 {
		return false, nil
	}
	clusters, err := strconv.Atoi(role[1])
	if err != nil {
		return true, err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the program that has started it has ended
	}()
	if role[0] == fleetKCPRole {
		return true, runFleetKCP(ctx, clusters)
	}
	return true, runFleetScheduler(ctx, role[0], clusters)
}

// startFleetProcess starts the process of a role, and waits until it serves.
func startFleetProcess(ctx context.Context, b *bench, role string, clusters int) (*fleetProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &fleetProcess{Cmd: exec.CommandContext(ctx, self)}
	p.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", fleetEnv, role, clusters))
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
		return nil, errors.Join(fmt.Errorf("a process of the fleet did not start: %w", err), p.end())
	}
	p.url = strings.TrimSpace(line)
	return p, nil
}

// end kills a process.
func (p *fleetProcess) end() error {
	if err := p.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.Wait() // it was killed
	return nil
}

// ask sends a request to a process, and decodes the answer if there is a place for it.
func (p *fleetProcess) ask(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	raw, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s: %s", path, answer.Status, raw)
	case into == nil:
		return nil
	}
	return json.Unmarshal(raw, into)
}

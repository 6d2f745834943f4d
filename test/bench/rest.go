package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// memory returns the resident memory of the controller and of the syncer, in megabytes.
func (f *field) memory() (controller, syncer float64, _ error) {
	for _, pid := range processesOf(f.dir) {
		if !slices.Contains(arguments(pid), "controller") {
			continue
		}
		kib, err := statusField(pid, "VmRSS:")
		if err != nil {
			return 0, 0, err
		}
		controller = megabytes(kib << 10)
	}
	kib, err := statusField(f.syncer.Process.Pid, "VmRSS:")
	return controller, megabytes(kib << 10), err
}

// arguments returns the command line of a process.
func arguments(pid int) []string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	return strings.Split(string(raw), "\x00")
}

// addressesOfProbes returns the addresses of the probes of servers of a directory.
func addressesOfProbes(dir string) ([]string, error) {
	const flag = "--health-probe-bind-address="
	for _, pid := range processesOf(dir) {
		for _, arg := range arguments(pid) {
			if address, ok := strings.CutPrefix(arg, flag); ok {
				_, port, err := net.SplitHostPort(address)
				return []string{net.JoinHostPort("127.0.0.1", port)}, err
			}
		}
	}
	return nil, errors.New("the controller serves no probe")
}

// requests returns the requests of the controller and the syncer in a minute.
func (f *field) requests(ctx context.Context) (float64, error) {
	before, err := f.counted(ctx)
	if err != nil {
		return 0, err
	}
	time.Sleep(restFor)
	after, err := f.counted(ctx)
	return (after - before) * float64(time.Minute) / float64(restFor), err
}

func (f *field) counted(ctx context.Context) (sum float64, _ error) {
	for _, address := range f.probes {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return 0, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if i := strings.LastIndexByte(lines.Text(), ' '); strings.HasPrefix(lines.Text(), "rest_client_requests_total{") {
				n, err := strconv.ParseFloat(lines.Text()[i+1:], 64)
				if err != nil {
					return 0, errors.Join(err, resp.Body.Close())
				}
				sum += n
			}
		}
		if err := resp.Body.Close(); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

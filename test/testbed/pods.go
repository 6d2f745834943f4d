package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// killPods kills all containers of the node and their shims. It does not use containerd, which may be broken.
func (n node) killPods(ctx context.Context) error {
	tasks, err := filepath.Glob(filepath.Join(n.run, "containerd", "io.containerd.runtime.v2.task", "k8s.io", "*"))
	if err != nil {
		return err
	}
	g, groupCtx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		g.Go(func() error { return killContainer(groupCtx, filepath.Base(t)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	shims, err := n.shims()
	if err != nil {
		return err
	}
	g, groupCtx = errgroup.WithContext(ctx)
	for _, s := range shims {
		g.Go(func() error { return s.end(groupCtx, 5*time.Second) }) // time to remove its socket
	}
	return g.Wait()
}

// podWeight is the share of the processors that the pods of all nodes get on a busy machine, in processes. Without it,
// all pods together get that of one process, and a kcp in pods does not start in time beside builds and tests.
const podWeight = 16

// weighPods sets podWeight for the cgroup of all containers.
func weighPods(root string) error {
	dir, file, weight := filepath.Join(root, "cpu/k8s.io"), "cpu.shares", 1024*podWeight // cgroup v1
	if exists(filepath.Join(root, "cgroup.controllers")) {
		dir, file, weight = filepath.Join(root, "k8s.io"), "cpu.weight", 100*podWeight // cgroup v2
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(weight)), 0o644)
}

// killContainer kills the processes in the cgroups of a container and removes the cgroups, as runc would.
func killContainer(ctx context.Context, id string) error {
	cgroups, err := filepath.Glob("/sys/fs/cgroup/*/k8s.io/" + id) // cgroup v1: one per controller
	if err != nil {
		return err
	}
	cgroups = append(cgroups, "/sys/fs/cgroup/k8s.io/"+id) // cgroup v2
	return poll(ctx, 20*time.Second, func(context.Context) error {
		var errs []error
		for _, cgroup := range cgroups {
			procs, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
			if err != nil {
				continue // no such cgroup
			}
			for _, pid := range strings.Fields(string(procs)) {
				if p, err := strconv.Atoi(pid); err == nil && p > 0 {
					syscall.Kill(p, syscall.SIGKILL) //nolint:errcheck // the removal fails if this did
				}
			}
			errs = append(errs, os.Remove(cgroup))
		}
		return errors.Join(errs...)
	})
}

// shims returns the shim processes of the node, of any containerd.
func (n node) shims() ([]record, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var found []record
	for _, f := range files {
		cmdline, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		argv := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
		if filepath.Base(argv[0]) != "containerd-shim-runc-v2" || !slices.Contains(argv, n.socket()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return nil, fmt.Errorf("read the pid of %s: %w", f, err)
		}
		if r, err := identify(pid); err == nil {
			found = append(found, r)
		}
	}
	return found, nil
}

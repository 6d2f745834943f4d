package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// runDown stops nodes and removes their files.
func runDown(ctx context.Context, t *testbed, o *options) error {
	chosen, err := nodesNamed(o.node)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range chosen {
		if err := t.down(ctx, n); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n.name, err))
		}
	}
	return errors.Join(errs...)
}

// down removes the node, dependants first. It stops at the first failure, so that the next down still finds the rest.
func (t *testbed) down(ctx context.Context, n node) error {
	if !exists(n.state) && !exists(n.run) && !exists("/run/netns/"+n.id) {
		t.log.note("node %s is not up", n.name)
		return nil
	}
	unlock, err := t.lock(ctx, "node-"+n.name)
	if err != nil {
		return err
	}
	defer unlock()
	components := t.components(n)
	for _, s := range []struct {
		did string
		do  func(context.Context) error
	}{
		{"kubelet and containerd stopped", stopper(n, components, "provisioner", "kubelet", "containerd")}, // otherwise pods restart
		{"pods killed", n.killPods},
		{"control plane stopped", stopper(n, components, firewall, "kube-proxy", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")},
		{"network removed", func(ctx context.Context) error { return t.disconnect(ctx, n) }},
		{"mounts and files removed", n.removeFiles},
	} {
		began := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("not %s: %w", s.did, err)
		}
		t.log.step(s.did, time.Since(began))
	}
	return nil
}

// stopper returns a function that kills the named processes, since none of their data is kept.
func stopper(n node, components []component, names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, c := range components {
			if slices.Contains(names, c.name) {
				g.Go(func() error { return n.recorded(c.name).end(ctx, 0) })
			}
		}
		return g.Wait()
	}
}

// runStop kills a process of a node.
func runStop(ctx context.Context, t *testbed, o *options) error {
	n, err := oneNode(o.node)
	if err != nil {
		return err
	}
	components := t.components(n)
	if len(o.args) != 1 || !slices.ContainsFunc(components, func(c component) bool { return c.name == o.args[0] }) {
		return errors.New("name one process of testbed status")
	}
	return stopper(n, components, o.args[0])(ctx)
}

// removeFiles unmounts and removes the directories of the node, and files of its processes in other places.
func (n node) removeFiles(ctx context.Context) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if targets := mountsBelow(string(mounts), n.state, n.run); len(targets) > 0 {
		if _, err := (command{name: "umount", args: append([]string{"--lazy"}, targets...)}).run(ctx); err != nil {
			return err
		}
	}
	errs := []error{os.RemoveAll(n.state), os.RemoveAll(n.run)}
	for _, pattern := range []string{"/var/log/containers/*", "/var/lib/cni/results/" + n.id + "-*"} {
		files, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, f := range files {
			target, err := os.Readlink(f)
			if err == nil && !strings.HasPrefix(target, n.state+"/") {
				continue // the log of another kubelet
			}
			errs = append(errs, os.Remove(f))
		}
	}
	n.removeShared()
	return errors.Join(errs...)
}

// removeShared removes what nodes share if no node uses it. Directories are removed only if they are empty.
func (n node) removeShared() {
	const plugins = "/var/lib/kubelet/device-plugins"                              // no flag moves it
	if !exists(filepath.Dir(n.state)) || os.Remove(filepath.Dir(n.state)) == nil { // the last node
		os.Remove(plugins + "/kubelet.sock") //nolint:errcheck // unused without its kubelet
	}
	cgroups, _ := filepath.Glob("/sys/fs/cgroup/*/k8s.io") // the pattern is well formed
	for _, dir := range append(cgroups,
		"/sys/fs/cgroup/k8s.io", filepath.Dir(n.run), "/var/log/containers", "/var/log/pods", plugins, filepath.Dir(plugins),
		"/var/lib/cni/results", "/var/lib/cni/cache", "/var/lib/cni", "/run/containerd/s", "/run/containerd",
	) {
		os.Remove(dir) //nolint:errcheck // fails on purpose unless it is empty
	}
}

// mountsBelow returns the mount points below the directories in a mountinfo, the latest first.
func mountsBelow(mountinfo string, dirs ...string) []string {
	var found []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := strings.ReplaceAll(fields[4], `\040`, " ")
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(point, dir+"/") }) {
			found = append(found, point)
		}
	}
	slices.Reverse(found)
	return found
}

package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
)

// runUp brings a node up, or whatever of it is down.
func runUp(ctx context.Context, t *testbed, o *options) error {
	n, err := oneNode(o.node)
	if err != nil {
		return err
	}
	if err := requireMachine(ctx, t.log); err != nil {
		return err
	}
	unlock, err := lock(ctx, t.nodeLock(n))
	if err != nil {
		return err
	}
	defer unlock()
	for _, s := range sets() {
		if err := t.build(ctx, s, nodeBinaries(s)...); err != nil {
			return err
		}
	}
	steps, err := t.upSteps(n)
	if err != nil {
		return err
	}
	if err := runSteps(ctx, t.log, steps); err != nil {
		return err
	}
	t.log.note("node %s is up: export KUBECONFIG=%s", n.name, n.kubeconfig("admin"))
	return nil
}

// nodeBinaries leaves out what no node needs, and a cold up should not wait for.
func nodeBinaries(s buildSet) []string {
	return slices.DeleteFunc(s.names(), func(name string) bool { return name == "sharded-test-server" })
}

func (t *testbed) nodeLock(n node) string { return filepath.Join(t.cache, "locks", "node-"+n.name) }

// upSteps lists what makes a node, each with what it needs.
func (t *testbed) upSteps(n node) ([]step, error) {
	components, err := t.components(n)
	if err != nil {
		return nil, err
	}
	steps := []step{
		{"network", nil, n.connect},
		{"files", nil, func(context.Context) (string, error) { return "written", n.files() }},
	}
	imported := []step{}
	for _, i := range images() {
		after := "kube-apiserver" // which starts faster while the disk and the processors are its own
		if i.early {
			after = "etcd"
		}
		imported = append(imported, step{"image " + i.short(), []string{"containerd", after}, func(ctx context.Context) (string, error) {
			return t.importImage(ctx, n, i)
		}})
	}
	for _, c := range components {
		if c.name == "kubelet" { // it needs an image
			steps = append(steps, imported...)
		}
		steps = append(steps, step{c.name, c.needs, func(ctx context.Context) (string, error) {
			return n.ensure(ctx, c.process)
		}})
	}
	return append(steps,
		step{"addons", []string{"kube-apiserver"}, says("applied", n.applyAddons)},
		step{"node", []string{"kubelet", "kube-controller-manager"}, says("ready", n.awaitNode)},
		step{"coredns", []string{"addons", "node", "kube-proxy", "kube-scheduler"}, says("ready", n.awaitDNS)},
	), nil
}

func says(did string, do func(context.Context) error) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return did, do(ctx) }
}

// importImage gives containerd the image unless it has it.
func (t *testbed) importImage(ctx context.Context, n node, i image) (string, error) {
	ctr, err := t.ctr(n)
	if err != nil {
		return "", err
	}
	has, err := ctr(ctx, "images", "list", "--quiet", "name=="+i.ref)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(has) == i.ref {
		return "exists", nil
	}
	file, err := t.archive(ctx, i)
	if err != nil {
		return "", err
	}
	_, err = ctr(ctx, "images", "import", "--local", "--discard-unpacked-layers", file)
	return "imported", err
}

// ctr returns containerd's client, bound to the node.
func (t *testbed) ctr(n node) (func(ctx context.Context, args ...string) (string, error), error) {
	containerd, err := setNamed("containerd")
	if err != nil {
		return nil, err
	}
	program := filepath.Join(t.binDir(containerd), "ctr")
	return func(ctx context.Context, args ...string) (string, error) {
		bound := append([]string{"--address", n.socket(), "--namespace", "k8s.io"}, args...)
		return command{name: program, args: bound}.run(ctx)
	}, nil
}

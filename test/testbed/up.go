package main

import (
	"context"
	"slices"
)

// runUp starts the parts of a node that do not run.
func runUp(ctx context.Context, t *testbed, o *options) error {
	n, err := oneNode(o.node)
	if err != nil {
		return err
	}
	if err := requireMachine(ctx, t.log); err != nil {
		return err
	}
	unlock, err := t.lock(ctx, "node-"+n.name)
	if err != nil {
		return err
	}
	defer unlock()
	var all []wanted
	for _, s := range sets() {
		if s.onDemand {
			continue
		}
		all = append(all, wanted{s, nodeBinaries(s)})
	}
	if err := t.buildAll(ctx, all); err != nil {
		return err
	}
	if err := runSteps(ctx, t.log, t.upSteps(n)); err != nil {
		return err
	}
	t.log.note("node %s is up: export KUBECONFIG=%s", n.name, n.kubeconfig("admin"))
	return nil
}

// nodeBinaries returns the binaries of a set that a node needs.
func nodeBinaries(s buildSet) []string {
	return slices.DeleteFunc(s.names(), func(name string) bool { return name == "sharded-test-server" })
}

// upSteps returns the steps that start a node.
func (t *testbed) upSteps(n node) []step {
	steps := []step{
		{"network", nil, func(ctx context.Context) (string, error) { return t.connect(ctx, n) }},
		{"files", nil, func(context.Context) (string, error) { return "written", n.files() }},
		{"share of pods", nil, func(context.Context) (string, error) {
			if err := weighPods("/sys/fs/cgroup"); err != nil {
				return "not set: " + err.Error(), nil // a node on an idle machine does not need it
			}
			return "set", nil
		}},
	}
	imported := []step{}
	for _, i := range images() {
		if i.set.onDemand {
			continue
		}
		after := "kube-apiserver" // which starts faster without concurrent imports
		if i.early {
			after = "etcd"
		}
		imported = append(imported, step{"image " + i.short(), []string{"containerd", after}, func(ctx context.Context) (string, error) {
			return t.importImage(ctx, n, i)
		}})
	}
	for _, c := range t.components(n) {
		if c.onDemand {
			continue
		}
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
	)
}

func says(did string, do func(context.Context) error) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return did, do(ctx) }
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// runKubeconfig prints the path of the administrator's kubeconfig.
func runKubeconfig(_ context.Context, t *testbed, o *options) error {
	n, err := oneNode(o.node)
	if err != nil {
		return err
	}
	return t.printNodeFile(n, n.kubeconfig("admin"))
}

func (t *testbed) printNodeFile(n node, file string) error {
	if !exists(file) {
		return fmt.Errorf("node %s is not up", n.name)
	}
	_, err := fmt.Fprintln(t.stdout, file)
	return err
}

// runUserKubeconfig issues a certificate for a user without rights.
func runUserKubeconfig(_ context.Context, t *testbed, o *options) error {
	n, err := oneNode(o.node)
	if err != nil {
		return err
	}
	if len(o.args) != 1 {
		return errors.New("name one user")
	}
	if !exists(n.kubeconfig("admin")) {
		return fmt.Errorf("node %s is not up", n.name)
	}
	ca, err := n.authority()
	if err != nil {
		return err
	}
	c := credential{name: "user-" + filepath.Base(o.args[0]), user: o.args[0], groups: o.groups}
	for _, file := range []string{n.stateFile("pki", c.name+".key"), n.kubeconfig(c.name)} { // the groups may have changed
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := n.issue(ca, c); err != nil {
		return err
	}
	return t.printNodeFile(n, n.kubeconfig(c.name))
}

// runKcpBinDir prints the directory of kcp's binaries.
func runKcpBinDir(ctx context.Context, t *testbed, o *options) error {
	set, err := setNamed("kcp-" + o.version)
	if err != nil {
		return err
	}
	return t.printBinDir(ctx, set)
}

// runAgentBinDir prints the directory of the agent of service clusters.
func runAgentBinDir(ctx context.Context, t *testbed, _ *options) error {
	return t.printBinDir(ctx, agentSet())
}

func (t *testbed) printBinDir(ctx context.Context, set buildSet) error {
	if err := t.build(ctx, set); err != nil {
		return err
	}
	_, err := fmt.Fprintln(t.stdout, t.binDir(set))
	return err
}

// runBinDir prints the directory of the Kubernetes binaries, which has links to those of etcd.
func runBinDir(ctx context.Context, t *testbed, o *options) error {
	kubernetes, etcd := kubernetesSet(), etcdSet()
	all := append(kubernetes.names(), etcd.names()...)
	named := o.args
	if len(named) == 0 {
		named = all
	}
	for _, name := range named {
		if !slices.Contains(all, name) {
			return fmt.Errorf("unknown binary %q; the binaries are %v", name, all)
		}
	}
	var sets []wanted
	for _, s := range []buildSet{etcd, kubernetes} {
		names := slices.DeleteFunc(s.names(), func(name string) bool { return !slices.Contains(named, name) })
		if len(names) > 0 {
			sets = append(sets, wanted{s, names})
		}
	}
	if err := t.buildAll(ctx, sets); err != nil {
		return err
	}
	dir := t.binDir(kubernetes)
	if err := t.linkEtcd(dir); err != nil {
		return err
	}
	_, err := fmt.Fprintln(t.stdout, dir)
	return err
}

// linkEtcd links the binaries of etcd in a directory, so that callers need only one.
func (t *testbed) linkEtcd(dir string) error {
	etcd := etcdSet()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range etcd.names() {
		if !exists(filepath.Join(t.binDir(etcd), name)) {
			continue
		}
		target := filepath.Join("..", filepath.Base(t.binDir(etcd)), name)
		link := filepath.Join(dir, name)
		if now, err := os.Readlink(link); err == nil && now == target {
			continue
		}
		if err := os.Symlink(target, link+".tmp"); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := os.Rename(link+".tmp", link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// runBuild builds sets. No arguments mean all sets.
func runBuild(ctx context.Context, t *testbed, o *options) error {
	var chosen []wanted
	for _, name := range o.args {
		s, err := setNamed(name)
		if err != nil {
			return err
		}
		chosen = append(chosen, wanted{set: s})
	}
	if len(o.args) == 0 {
		for _, s := range sets() {
			if !s.onDemand {
				chosen = append(chosen, wanted{set: s})
			}
		}
	}
	return t.buildAll(ctx, chosen)
}

// runStatus prints the processes of the nodes.
func runStatus(ctx context.Context, t *testbed, _ *options) error {
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tPROCESS\tPID\tSTATE")
	for _, n := range nodes() {
		probe, err := n.prober()
		if err != nil {
			fmt.Fprintf(w, "%s\t-\t-\tdown\n", n.name)
			continue
		}
		for _, c := range t.components(n) {
			r, state := n.recorded(c.name), "serves"
			if !r.alive() {
				fmt.Fprintf(w, "%s\t%s\t-\tdown\n", n.name, c.name)
				continue
			}
			if err := probe(ctx, c.health); err != nil {
				state = "runs, but: " + err.Error()
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", n.name, c.name, r.PID, state)
		}
	}
	return w.Flush()
}

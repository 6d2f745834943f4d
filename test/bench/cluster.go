package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	_ "embed"
)

// operator is the time of kcp-operator for the same setup, in seconds, measured on a similar machine.
const operator = 92

// withManagedEtcds is the additional time that managed etcds may take, in seconds.
const withManagedEtcds = 15

// cluster is the Kubernetes cluster to measure on.
type cluster struct {
	kubectl    string
	kubeconfig string
	// name is the namespace of the next setup, and the prefix of the other namespaces.
	name string
}

// onCluster is a setup for the cluster.
type onCluster struct {
	name string
	// prepare creates the prerequisites and returns the setup file.
	prepare  func(ctx context.Context, c *cluster, dir string) (string, error)
	up, noOp bringUps
}

// measureCluster runs up for the two setups in turns, each twice. The second up changes nothing.
func measureCluster(ctx context.Context, b *bench, runs int) (err error) {
	c, release, err := b.cluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	external := &onCluster{name: "plain external etcds", prepare: prepareEtcds}
	managed := &onCluster{name: "managed etcds", prepare: func(context.Context, *cluster, string) (string, error) { return sharded, nil }}
	for i := range runs {
		for _, s := range []*onCluster{external, managed} {
			c.name = fmt.Sprintf("kcpctl-bench-%d-%d", os.Getpid(), i)
			if err := b.bringUpOn(ctx, c, s); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	r := &b.report
	m := r.add("cluster, "+external.name, "s", external.up.of(wall), limit(40), reference("kcp-operator", operator))
	r.add("cluster, "+managed.name, "s", managed.up.of(wall), reference("limit: external + 15 s", m+withManagedEtcds))
	all := slices.Concat(external.up, managed.up)
	r.add("cluster, kcpctl's own part", "s", all.of(own))
	r.add("cluster, kcpctl's CPU time", "s", all.of(cpu))
	r.add("cluster, kcpctl's memory", "MB", all.of(memory))
	r.add("cluster, up that changes nothing", "s", slices.Concat(external.noOp, managed.noOp).of(wall), limit(3))
	r.addPath("cluster, "+external.name, external.up)
	r.addPath("cluster, "+managed.name, managed.up)
	return nil
}

// bringUpOn runs up twice and removes everything.
func (b *bench) bringUpOn(ctx context.Context, c *cluster, s *onCluster) (err error) {
	dir, err := os.MkdirTemp("", "kcpctl-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.removeFrom(ctx, c), os.RemoveAll(dir)) }()
	file, err := s.prepare(ctx, c, dir)
	if err != nil {
		return err
	}
	args := []string{"-f", file, "--kubeconfig", c.kubeconfig, "--namespace", c.name}
	defer func() { err = errors.Join(err, b.down(ctx, nil, args...)) }()
	first, err := b.up(ctx, nil, args...)
	if err != nil {
		return err
	}
	second, err := b.up(ctx, nil, args...)
	if err != nil {
		return err
	}
	b.logf("cluster, %s: %.1f s, again %.1f s", s.name, first.wall.Seconds(), second.wall.Seconds())
	s.up, s.noOp = append(s.up, first), append(s.noOp, second)
	return nil
}

// down removes a setup, even if ctx has ended.
func (b *bench) down(ctx context.Context, env []string, args ...string) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := command{name: b.kcpctl, args: append([]string{"down", "--yes", "--purge"}, args...), env: env}.run(ctx)
	return err
}

// removeFrom removes the namespaces, even if ctx has ended.
func (b *bench) removeFrom(ctx context.Context, c *cluster) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := c.kube(ctx, "", "delete", "namespace", "--ignore-not-found", c.name, c.etcds())
	return err
}

// cluster finds or starts the cluster. release stops a cluster that it has started.
func (b *bench) cluster(ctx context.Context) (c *cluster, release func() error, err error) {
	c, release = &cluster{}, func() error { return nil }
	if c.kubectl, err = kubectl(ctx); err != nil {
		return nil, nil, err
	}
	if c.kubeconfig = os.Getenv("E2E_KUBECONFIG"); c.kubeconfig != "" {
		return c, release, nil
	}
	c.kubeconfig, release, err = b.node(ctx, "a")
	return c, release, err
}

// node finds or starts a node of the testbed. release stops it if this has started it.
func (b *bench) node(ctx context.Context, name string) (kubeconfig string, release func() error, err error) {
	release = func() error { return nil }
	if kubeconfig, err = testbed(ctx, "kubeconfig", "--node", name); err == nil {
		return kubeconfig, release, nil
	}
	b.logf("starting node %s of the testbed", name)
	release = func() error {
		ctx, cancel := detached(ctx)
		defer cancel()
		_, err := testbed(ctx, "down", "--node", name)
		return err
	}
	if _, err = testbed(ctx, "up", "--node", name); err == nil {
		kubeconfig, err = testbed(ctx, "kubeconfig", "--node", name)
	}
	if err != nil {
		return "", nil, errors.Join(err, release())
	}
	return kubeconfig, release, nil
}

// kube runs kubectl.
func (c *cluster) kube(ctx context.Context, stdin string, args ...string) (string, error) {
	return command{name: c.kubectl, args: append([]string{"--kubeconfig", c.kubeconfig}, args...), stdin: stdin}.output(ctx)
}

// etcds is the namespace of the etcds that exist before a setup.
func (c *cluster) etcds() string { return c.name + "-etcd" }

//go:embed etcds.yaml
var etcdsYAML string

//go:embed external.yaml
var externalYAML string

// prepareEtcds creates three etcds of one member without TLS, waits until they are ready, and writes the setup that
// uses them.
func prepareEtcds(ctx context.Context, c *cluster, dir string) (string, error) {
	namespace := func(manifest string) string {
		return os.Expand(manifest, func(string) string { return c.etcds() })
	}
	if _, err := c.kube(ctx, namespace(etcdsYAML), "apply", "-f", "-"); err != nil {
		return "", err
	}
	_, err := c.kube(ctx, "", "wait", "--namespace", c.etcds(), "--for=condition=Available", "--timeout=2m", "deployment", "--all")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "kcp.yaml")
	return file, os.WriteFile(file, []byte(namespace(externalYAML)), 0o600)
}

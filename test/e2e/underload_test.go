//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The releases of the tested upgrade.
const (
	olderRelease = "v0.32.2"
	newerRelease = "v0.32.3"
)

const replicated = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  version: %s
  external: {hostname: kcp.example.test}
  defaults: {replicas: 2}
  etcd: {managed: {replicas: 3}}
  shards: [{name: alpha}]
  frontProxies:
    - {name: main, service: {type: LoadBalancer}}
  kubeconfigs:
    - {name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}
`

// underLoad is a setup in continuous use.
type underLoad struct {
	*certificates
	dial func(context.Context, string, string) (net.Conn, error)
	// current is the path of the latest kubeconfig.
	current string
	load    *load
	// allowed is the number of requests that may fail in each step.
	allowed int
}

// change is a change of a setup in use.
type change struct {
	name string
	do   func(*underLoad, *testing.T)
}

// testUnderLoad changes a setup in use. In each change a number of requests may fail.
func testUnderLoad(t *testing.T, s *setup, allowed int, changes ...change) {
	s.write(t, s.text)
	s.up(t)
	u := &underLoad{certificates: &certificates{setup: s}, dial: s.dialer(t), current: filepath.Join(t.TempDir(), "current"), allowed: allowed}
	step(t, "workspaces with content", u.createOnBoth)
	require.NoError(t, u.refresh(t))
	u.load = startLoad(t, u.current, u.dial, true)
	step(t, "nothing changes", func(t *testing.T) {
		time.Sleep(15 * time.Second)
		u.report(t, u.load.take(), 0)
	})
	for _, c := range changes {
		step(t, c.name, func(t *testing.T) { c.do(u, t) })
	}
	u.report(t, u.load.stop(), 0)
	step(t, "workspaces are unchanged", func(t *testing.T) { u.readBoth(t) })
	step(t, "down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) })
}

// createOnBoth creates a workspace with a ConfigMap on each shard.
func (u *underLoad) createOnBoth(t *testing.T) {
	create := u.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
	create.stdin = fmt.Sprintf(workspaceManifest, "root") + fmt.Sprintf(workspaceManifest, "alpha")
	create.run(t.Context(), t).ok(t)
	u.kubectl(t, "wait", "workspaces", "on-root", "on-alpha", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").ok(t)
	for _, shard := range []string{"root", "alpha"} {
		u.creates(t, inWorkspace(shard), "configmap", "data", "--from-literal=shard="+shard)
	}
}

// creates creates an object in a workspace, as soon as the front-proxy knows the workspace (kcp#3858), and the shard
// what its user may do.
func (s *setup) creates(t *testing.T, kubeconfig []string, args ...string) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		r := s.kubectlAs(t, kubeconfig, append([]string{"create"}, args...)...)
		if strings.Contains(r.stderr, "already exists") { // an earlier try did it, and its answer was lost
			return nil
		}
		_, err := r.output()
		return err
	})
}

func (u *underLoad) readBoth(t *testing.T) {
	for _, shard := range []string{"root", "alpha"} {
		eventually(t.Context(), t, func() error {
			return u.reads(t, shard, inWorkspace(shard), "get", "configmap", "data", "--output", "jsonpath={.data.shard}")
		})
	}
}

// refresh replaces the kubeconfig atomically.
func (u *underLoad) refresh(t *testing.T) error {
	t.Helper()
	next := u.current + ".next"
	c := u.setup.command("kubeconfig")
	c.args = append([]string{"kubeconfig", "admin", "--file", u.file, "--output", next}, u.runtime.flags("")...)
	if _, err := c.run(t.Context(), t).output(); err != nil {
		return err
	}
	return os.Rename(next, u.current)
}

// under makes a change while the kubeconfig is refreshed, and reports the requests of clients.
func (u *underLoad) under(t *testing.T, change func()) {
	t.Helper()
	u.load.take()
	done := make(chan struct{})
	var refresher sync.WaitGroup
	refresher.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Second):
				if err := u.refresh(t); err != nil {
					t.Error(err)
				}
			}
		}
	})
	began := time.Now()
	defer refresher.Wait()
	defer close(done)
	change()
	took := time.Since(began)
	time.Sleep(5 * time.Second) // until the last old pods have ended
	t.Logf("took %.0fs", took.Seconds())
	u.report(t, u.load.take(), u.allowed)
}

func (u *underLoad) report(t *testing.T, n tally, allowed int) {
	t.Helper()
	t.Log(n)
	require.NotZero(t, n.requests)
	require.LessOrEqual(t, n.failed, allowed, n) // n says which requests failed, when and why
}

func (u *underLoad) upgrade(t *testing.T) {
	if l, ok := u.runtime.(*local); ok {
		l.binaries = given(t, "E2E_KCP_BIN_DIR")
	}
	u.under(t, func() { t.Log(u.kcpctl(t, "upgrade", newerRelease).ok(t).quiet(t).stderr) })
	raw, err := os.ReadFile(u.file)
	require.NoError(t, err)
	require.Equal(t, strings.Replace(u.text, olderRelease, newerRelease, 1), string(raw))
	for _, c := range u.becomesReady(t).Components {
		if !strings.HasPrefix(c.ID, "etcd/") {
			require.Equal(t, newerRelease, c.Version, c)
		}
	}
}

// edit changes a flag of a shard. up rolls the shard and makes front-proxies connect to its new pods.
func (u *underLoad) edit(t *testing.T) {
	raw, err := os.ReadFile(u.file)
	require.NoError(t, err)
	const before, after = "{name: alpha}", "{name: alpha, logLevel: 3}"
	require.Contains(t, string(raw), before)
	u.write(t, strings.Replace(string(raw), before, after, 1))
	u.under(t, func() { t.Log(u.up(t).stderr) })
	u.becomesReady(t)
	time.Sleep(5 * time.Second) // clients send requests until the end
}

// renew renews all certificates.
func (u *underLoad) renew(t *testing.T) {
	u.under(t, func() { t.Log(u.certs(t, "renew", "--skip-canary").ok(t).quiet(t).stderr) })
}

// rotate rotates authorities. A client with a previous kubeconfig works until the previous authorities are removed.
func (u *underLoad) rotate(t *testing.T) {
	authorities := []string{"server", "client", "requestheader"}
	rotateCA := func(flags ...string) {
		u.under(t, func() {
			t.Log(u.certs(t, "rotate-ca", append(append(flags, "--skip-canary"), authorities...)...).ok(t).quiet(t).stderr)
		})
	}
	raw, err := os.ReadFile(u.current)
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "previous")
	require.NoError(t, os.WriteFile(kubeconfig, raw, 0o600))
	previous := startLoad(t, kubeconfig, u.dial, false)
	rotateCA()
	u.inPhase(t, "switch", authorities...)
	u.report(t, previous.take(), u.allowed)
	rotateCA("--finish", "--yes")
	previous.take()
	time.Sleep(2 * time.Second)
	n := previous.stop()
	require.NotZero(t, n.requests)
	require.Equal(t, n.requests, n.failed, "the previous authorities are still trusted: %s", n)
}

// dialer returns the function by which a client reaches the front-proxy: on a cluster, at the address of its load
// balancer.
func (s *setup) dialer(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	c, ok := s.runtime.(*cluster)
	if !ok {
		return (&net.Dialer{}).DialContext
	}
	r := c.kubectl("get", "service", s.name+"-front-proxy-main", "--namespace", c.setup,
		"--output", "jsonpath={.status.loadBalancer.ingress[0].ip}:{.spec.ports[0].port}").run(t.Context(), t).ok(t)
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, r.stdout)
	}
}

package day2

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

	"github.com/kcpctl/kcpctl/test/e2e/framework"
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
	load    *framework.Load
	// allowed is the number of requests that may fail in each step.
	allowed int
}

// change is a change of a setup in use.
type change struct {
	name string
	do   func(*underLoad, *testing.T)
}

// testUnderLoad changes a setup in use. In each change a number of requests may fail.
func testUnderLoad(t *testing.T, s *framework.Setup, allowed int, changes ...change) {
	s.Write(t, s.Text)
	s.Up(t)
	u := &underLoad{certificates: &certificates{Setup: s}, dial: s.Dialer(t), current: filepath.Join(t.TempDir(), "current"), allowed: allowed}
	framework.Step(t, "workspaces with content", u.createOnBoth)
	require.NoError(t, u.refresh(t))
	u.load = startLoad(t, u.current, u.dial, true)
	framework.Step(t, "nothing changes", func(t *testing.T) {
		time.Sleep(15 * time.Second)
		u.report(t, u.load.Take(), 0)
	})
	for _, c := range changes {
		framework.Step(t, c.name, func(t *testing.T) { c.do(u, t) })
	}
	u.report(t, u.load.Stop(), 0)
	framework.Step(t, "workspaces are unchanged", func(t *testing.T) { u.readBoth(t) })
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) })
}

// createOnBoth creates a workspace with a ConfigMap on each shard.
func (u *underLoad) createOnBoth(t *testing.T) {
	create := u.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
	create.Stdin = fmt.Sprintf(framework.WorkspaceManifest, "root") + fmt.Sprintf(framework.WorkspaceManifest, "alpha")
	create.Run(t.Context(), t).OK(t)
	u.Kubectl(t, "wait", "workspaces", "on-root", "on-alpha", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
	for _, shard := range []string{"root", "alpha"} {
		u.Creates(t, framework.InWorkspace(shard), "configmap", "data", "--from-literal=shard="+shard)
	}
}

func (u *underLoad) readBoth(t *testing.T) {
	for _, shard := range []string{"root", "alpha"} {
		framework.Eventually(t.Context(), t, func() error {
			return u.Reads(t, shard, framework.InWorkspace(shard), "get", "configmap", "data", "--output", "jsonpath={.data.shard}")
		})
	}
}

// refresh replaces the kubeconfig atomically.
func (u *underLoad) refresh(t *testing.T) error {
	t.Helper()
	next := u.current + ".next"
	c := u.Setup.Command("kubeconfig")
	c.Args = append([]string{"kubeconfig", "admin", "--file", u.File, "--output", next}, u.Runtime.Flags("")...)
	if _, err := c.Run(t.Context(), t).Output(); err != nil {
		return err
	}
	return os.Rename(next, u.current)
}

// under makes a change while the kubeconfig is refreshed, and reports the requests of clients.
func (u *underLoad) under(t *testing.T, change func()) {
	t.Helper()
	u.load.Take()
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
	u.report(t, u.load.Take(), u.allowed)
}

func (u *underLoad) report(t *testing.T, n framework.Tally, allowed int) {
	t.Helper()
	t.Log(n)
	require.NotZero(t, n.Requests)
	require.LessOrEqual(t, n.Failed, allowed, n) // n says which requests failed, when and why
}

func (u *underLoad) upgrade(t *testing.T) {
	if l, ok := u.Runtime.(*framework.Local); ok {
		l.Binaries = framework.Given(t, "E2E_KCP_BIN_DIR")
	}
	u.under(t, func() { t.Log(u.Kcpctl(t, "upgrade", framework.NewerRelease).OK(t).Quiet(t).Stderr) })
	raw, err := os.ReadFile(u.File)
	require.NoError(t, err)
	require.Equal(t, strings.Replace(u.Text, framework.OlderRelease, framework.NewerRelease, 1), string(raw))
	for _, c := range u.BecomesReady(t).Components {
		if !strings.HasPrefix(c.ID, "etcd/") {
			require.Equal(t, framework.NewerRelease, c.Version, c)
		}
	}
}

// Edit changes a flag of a shard. up rolls the shard and makes front-proxies connect to its new pods.
func (u *underLoad) Edit(t *testing.T) {
	raw, err := os.ReadFile(u.File)
	require.NoError(t, err)
	const before, after = "{name: alpha}", "{name: alpha, logLevel: 3}"
	require.Contains(t, string(raw), before)
	u.Write(t, strings.Replace(string(raw), before, after, 1))
	u.under(t, func() { t.Log(u.Up(t).Stderr) })
	u.BecomesReady(t)
	time.Sleep(5 * time.Second) // clients send requests until the end
}

// renew renews all certificates.
func (u *underLoad) renew(t *testing.T) {
	u.under(t, func() { t.Log(u.Certs(t, "renew", "--skip-canary").OK(t).Quiet(t).Stderr) })
}

// rotate rotates authorities. A client with a previous kubeconfig works until the previous authorities are removed.
func (u *underLoad) rotate(t *testing.T) {
	authorities := []string{"server", "client", "requestheader"}
	rotateCA := func(flags ...string) {
		u.under(t, func() {
			t.Log(u.Certs(t, "rotate-ca", append(append(flags, "--skip-canary"), authorities...)...).OK(t).Quiet(t).Stderr)
		})
	}
	raw, err := os.ReadFile(u.current)
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "previous")
	require.NoError(t, os.WriteFile(kubeconfig, raw, 0o600))
	previous := startLoad(t, kubeconfig, u.dial, false)
	rotateCA()
	u.inPhase(t, "switch", authorities...)
	u.report(t, previous.Take(), u.allowed)
	rotateCA("--finish", "--yes")
	previous.Take()
	time.Sleep(2 * time.Second)
	n := previous.Stop()
	require.NotZero(t, n.Requests)
	require.Equal(t, n.Requests, n.Failed, "the previous authorities are still trusted: %s", n)
}

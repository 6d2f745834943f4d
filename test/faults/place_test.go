package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/test/standin"
)

// setupName is the name of the setup in every place.
const setupName = "demo"

// patience is the time limit of a command.
const patience = 3 * time.Minute

// setupText is the setup file of every place, with a verb for the namespace.
const setupText = `# A setup with two shards. Comments stay when a command edits it.
apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata:
  name: demo
spec:
  clusters:
  - name: home
    namespace: %s   # one for each test
  etcd:
    embedded: {storage: 1Gi}
  rootShard:
    etcd:
      managed: {storage: 1Gi}
  shards:
  - name: alpha   # the first
  frontProxies:
  - name: main
  kubeconfigs:
  - name: admin
    user: kcp-admin
    groups: ["system:kcp:admin"]
`

// place is where a case runs: a namespace, a directory with a setup file, and a kcp that answers while pods run.
type place struct {
	*standin.Site
	world      *world
	dir        string
	kubeconfig string

	mu      sync.Mutex
	traffic *traffic
}

// newPlace creates a place with a setup file and nothing else. It is removed at the end of the test.
func (w *world) newPlace(owner *testing.T, name string) (*place, error) {
	namespace := fmt.Sprintf("%s%s-%d", namespacePrefix, name, w.made.Add(1))
	p := &place{Site: w.Add(namespace, fakekcp.New(owner)), world: w, dir: owner.TempDir(), traffic: &traffic{}}
	w.add(p)
	owner.Cleanup(func() { w.remove(p) })
	if err := os.WriteFile(p.file(), fmt.Appendf(nil, setupText, p.Namespace), 0o600); err != nil {
		return nil, err
	}
	var err error
	p.kubeconfig, err = w.proxy.Kubeconfig(p.Site, p.dir)
	return p, err
}

func (p *place) file() string { return filepath.Join(p.dir, "kcp.yaml") }

// result is the result of a command.
type result struct {
	line string
	// code is the exit code, or -1 if the command was killed.
	code     int
	output   string
	requests []request
	// hit is the failed request, or empty.
	hit  string
	took time.Duration
}

// kcpctl runs a command and waits until it ends. With a fault, one of its requests fails.
func (p *place) kcpctl(t *testing.T, f *fault, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, fmt.Errorf("not done after %s", patience))
	defer cancel()
	r := result{line: "kcpctl " + strings.Join(args, " ")}
	args = append(args, "-f", p.file(), "--kubeconfig", p.kubeconfig, "--context", standin.Context)
	cmd := exec.CommandContext(ctx, p.world.binary, args...)
	cmd.Env = []string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH")}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	started := make(chan struct{})
	tr := &traffic{fault: f, kill: func() { <-started; _ = cmd.Process.Kill() }}
	p.use(tr)
	begun := time.Now()
	require.NoError(t, cmd.Start())
	close(started)
	err := cmd.Wait()
	require.NoError(t, ctx.Err(), "%s: %v\n%s", r.line, context.Cause(ctx), &out)
	require.NotNil(t, cmd.ProcessState, "%s: %v", r.line, err)
	r.code, r.output, r.took = cmd.ProcessState.ExitCode(), out.String(), time.Since(begun)
	r.requests, r.hit = tr.seen()
	return r
}

// use sets the traffic of the next command.
func (p *place) use(t *traffic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traffic = t
}

// under returns the traffic of the running command.
func (p *place) under() *traffic {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.traffic
}

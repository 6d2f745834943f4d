//go:build integration

package faults

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/kcp"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/topology"
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
	world      *world
	namespace  string
	dir        string
	token      string
	kubeconfig string
	kcp        *fakekcp.Kcp

	mu       sync.Mutex
	traffic  *traffic
	pods     map[string]running
	problems []string // violations in the namespace
}

// running is a running pod with the files that it has read.
type running struct {
	*corev1.Pod
	component topology.ID
	files     map[string][]byte
}

// newPlace creates a place with a setup file and nothing else. It is removed at the end of the test.
func (w *world) newPlace(owner *testing.T, name string) (*place, error) {
	p := &place{
		world: w, namespace: fmt.Sprintf("%s%s-%d", namespacePrefix, name, w.made.Add(1)), dir: owner.TempDir(),
		token: rand.Text(), kcp: fakekcp.New(owner), traffic: &traffic{}, pods: map[string]running{},
	}
	w.add(p)
	owner.Cleanup(func() { w.remove(p) })
	if err := os.WriteFile(p.file(), fmt.Appendf(nil, setupText, p.namespace), 0o600); err != nil {
		return nil, err
	}
	var err error
	p.kubeconfig, err = w.proxy.open(p)
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
	args = append(args, "-f", p.file(), "--kubeconfig", p.kubeconfig, "--context", contextName)
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

// problem records a violation.
func (p *place) problem(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// start starts a pod: it reads its files and serves, and a shard registers itself.
func (p *place) start(ctx context.Context, pod *corev1.Pod) error {
	there, err := p.stored(ctx)
	if err != nil {
		return err
	}
	files, err := there.mountedBy(pod)
	if err != nil {
		return fmt.Errorf("a pod was started before the files that it mounts existed: %w", err)
	}
	id := topology.IDFromLabels(pod.Labels)
	p.mu.Lock()
	p.pods[pod.Name] = running{pod, id, files}
	p.mu.Unlock()
	if id.Kind() == topology.Etcd {
		return nil
	}
	var f topology.Files
	p.kcp.Serve(string(id), pki.Pair{Cert: files[f.Cert(topology.CertServer)], Key: files[f.Key(topology.CertServer)]},
		slices.Concat(files[f.CA(topology.ClientCA)], files[f.CA(topology.RequestHeaderCA)]))
	if id.Kind() == topology.RootShard || id.Kind() == topology.Shard {
		p.join(string(id), pod)
	}
	return nil
}

// join registers a shard that starts. The first of its replicas becomes the leader.
func (p *place) join(id string, pod *corev1.Pod) {
	flags := map[string]string{}
	for _, a := range pod.Spec.Containers[0].Args {
		name, value, _ := strings.Cut(a, "=")
		flags[name] = value
	}
	p.kcp.Register(kcp.Shard{
		Name: flags["--shard-name"], BaseURL: flags["--shard-base-url"], ExternalURL: flags["--shard-external-url"],
		VirtualWorkspaceURL: flags["--shard-virtual-workspace-url"],
	})
	leader := p.kcp.Leader(id)
	if leader == "" {
		leader = pod.Name
	}
	p.kcp.Lead(id, leader, pod.Name)
}

// end stops a pod.
func (p *place) end(pod string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, pod)
}

// running returns the running pods, by name.
func (p *place) running() map[string]running {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.pods)
}

// dial connects to the server in a pod.
func (p *place) dial(ctx context.Context, pod string) (net.Conn, error) {
	r, ok := p.running()[pod]
	if !ok {
		return nil, fmt.Errorf("pod %s does not run", pod)
	}
	return p.kcp.Dial(ctx, string(r.component))
}

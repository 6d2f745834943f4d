package framework

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Drained has two shards that take the same workspaces, and one region that only the first one has.
const Drained = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  external: {hostname: kcp.example.test}
  defaults:
    extraArgs: ["--feature-gates=LogicalClusterMigration=true"]
  etcd: {%s}
  shards:
    - {name: alpha, replicas: %[3]d, labels: {tier: a, region: eu}}
    - {name: beta, replicas: %[3]d, labels: {tier: a}}
  frontProxies:
    - {name: main, service: {type: LoadBalancer}}
  kubeconfigs:
    - {name: admin, user: kcp-admin, groups: ["system:kcp:admin"]}
`

const DrainedWorkspace = `---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: %s}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {%s}}}
`

// drains is how many times workspaces move, forth and back.
var drains = flag.Int("drains", 1, "number of drains of each test, forth and back")

// TestDrain drains a shard while clients write. No acknowledged write may be lost, and a workspace stays in its region.
func TestDrain(t *testing.T, s *Setup, etcd string, replicas int) {
	s.Text = fmt.Sprintf(Drained, s.Name, etcd, replicas)
	s.Write(t, s.Text)
	s.Up(t)
	names := []string{"eu", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"}
	Step(t, "workspaces on alpha", func(t *testing.T) {
		s.Kcpctl(t, "cordon", "beta").OK(t)
		create := s.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.Stdin = fmt.Sprintf(DrainedWorkspace, "eu", "region: eu")
		for _, name := range names[1:] {
			create.Stdin += fmt.Sprintf(DrainedWorkspace, name, "tier: a")
		}
		create.Run(t.Context(), t).OK(t)
		s.Kubectl(t, slices.Concat([]string{"wait", "workspaces"}, names, []string{"--for=jsonpath={.status.phase}=Ready", "--timeout=5m"})...).OK(t)
		s.Kcpctl(t, "uncordon", "beta").OK(t)
	})
	both := strings.Replace(s.Text, "labels: {tier: a}}", "labels: {tier: a, region: eu}}", 1)
	for n := range *drains {
		from := []string{"alpha", "beta"}[n%2]
		w := StartWriters(t, s, names)
		w.WriteMore(t, 300)
		if n == 0 {
			Step(t, "a workspace stays in its region", func(t *testing.T) {
				s.Kcpctl(t, "remove-shard", from, "--drain", "--yes").
					Refused(t, 1, "shard/alpha is not removed", `root:eu: its location selector "region=eu" matches no other shard`, "add-shard")
			})
		}
		Step(t, "and moves with it from "+from, func(t *testing.T) {
			s.Write(t, both)
			s.Up(t)
			s.Kcpctl(t, "remove-shard", from, "--drain", "--purge", "--yes").OK(t).Quiet(t)
		})
		w.WriteMore(t, 201)
		w.Stop()
		for _, name := range names {
			w.Check(t, name)
			w.remove(t, name)
		}
		t.Logf("%d replicas, drain %d: %d writes acknowledged, %d refused", replicas, n+1, w.Acknowledged, w.Refused)
		require.Greater(t, w.Acknowledged, 500)
	}
	Step(t, "nothing is left to do", func(t *testing.T) { s.Up(t).Changed(t, 0) })
	Step(t, "down --purge leaves nothing", func(t *testing.T) { LeavesNothing(t, s) })
}

// writers create ConfigMaps, each with a connection of its own.
type writers struct {
	client *http.Client
	url    string
	Stop   func()

	mu                    sync.Mutex
	written               map[string][]string // by workspace
	Acknowledged, Refused int
}

func StartWriters(t *testing.T, s *Setup, workspaces []string) *writers {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	c := s.Command("kubeconfig")
	c.Args = append([]string{"kubeconfig", "admin", "--file", s.File, "--output", file}, s.Runtime.Flags("")...)
	c.Run(t.Context(), t).OK(t)
	config, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	require.NoError(t, os.Remove(file))
	tls, err := rest.TLSConfigFor(config)
	require.NoError(t, err)
	w := &writers{written: map[string][]string{}}
	w.url, _, _ = strings.Cut(config.Host, "/clusters/")
	w.client = &http.Client{Timeout: requestPatience, Transport: &http.Transport{
		TLSClientConfig: tls, DialContext: s.Dialer(t), DisableKeepAlives: true,
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				w.Write(workspaces[(6*i+n)%len(workspaces)], fmt.Sprintf("written-%d-%d", n, i))
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	w.Stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(w.Stop)
	return w
}

// WriteMore waits until n more writes are acknowledged.
func (w *writers) WriteMore(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.Acknowledged
	}
	until := count() + n
	Eventually(t.Context(), t, func() error {
		if now := count(); now < until {
			return fmt.Errorf("%d writes are acknowledged, not %d", now, until)
		}
		return nil
	})
}

func (w *writers) path(workspace string) string {
	return w.url + "/clusters/root:" + workspace + "/api/v1/namespaces/default/configmaps"
}

func (w *writers) Write(workspace, name string) {
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"written":"true"}}}`, name)
	resp, err := w.client.Post(w.path(workspace), "application/json", bytes.NewReader(body))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || resp.StatusCode != http.StatusCreated {
		w.Refused++
	} else {
		w.Acknowledged++
		w.written[workspace] = append(w.written[workspace], name)
	}
	if err == nil {
		resp.Body.Close()
	}
}

// remove removes what was written to a workspace, so that the next drain does not copy more than the first.
func (w *writers) remove(t *testing.T, workspace string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.path(workspace)+"?labelSelector=written", nil)
	require.NoError(t, err)
	resp, err := w.client.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// Check requires that all acknowledged writes are there.
func (w *writers) Check(t *testing.T, workspace string) {
	t.Helper()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	Eventually(t.Context(), t, func() error {
		resp, err := w.client.Get(w.path(workspace))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", workspace, resp.Status)
		}
		return json.NewDecoder(resp.Body).Decode(&list)
	})
	have := map[string]bool{}
	for _, i := range list.Items {
		have[i.Metadata.Name] = true
	}
	require.NotEmpty(t, w.written[workspace], workspace)
	for _, name := range w.written[workspace] {
		require.True(t, have[name], "root:%s has lost %s", workspace, name)
	}
}

//go:build e2e && long

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// drained has two shards that take the same workspaces, and one region that only the first one has.
const drained = `apiVersion: kcpctl.dev/v1alpha1
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

const drainedWorkspace = `---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: %s}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {%s}}}
`

// drains is how many times workspaces move, forth and back.
var drains = flag.Int("drains", 1, "number of drains of each test, forth and back")

func TestLocalDrain(t *testing.T) {
	testDrain(t, newLocal(t, "minimal"), "embedded: {ephemeral: true}", 1)
}

// The run that has read the originals is killed, and then the shard with the copies is restarted and has forgotten
// them.
func TestLocalDrainInterrupted(t *testing.T) {
	s := newLocal(t, "minimal")
	s.text = fmt.Sprintf(drained, s.name, "embedded: {}", 1)
	s.write(t, s.text)
	s.up(t)
	create := s.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
	create.stdin = fmt.Sprintf(drainedWorkspace, "eu", "region: eu")
	create.run(t.Context(), t).ok(t)
	s.kubectl(t, "wait", "workspaces", "eu", "--for=jsonpath={.status.phase}=Ready", "--timeout=5m").ok(t)
	s.write(t, strings.Replace(s.text, "labels: {tier: a}}", "labels: {tier: a, region: eu}}", 1))
	s.up(t)
	w := startWriters(t, s, []string{"eu"})
	w.writeMore(t, 200)
	migration := func(path string) (value string) {
		eventually(t.Context(), t, func() (err error) {
			value, err = s.kubectl(t, "get", "logicalclustermigrations", "--output", "jsonpath={.items[*]."+path+"}").output()
			return err
		})
		return value
	}
	step(t, "a drain is killed while kcp copies", func(t *testing.T) {
		r := s.command("remove-shard", "alpha", "--drain", "--yes", "--output", "json").
			during(t, 1, regexp.MustCompile(`copying \d+ entries`), func(cmd *exec.Cmd) { require.NoError(t, cmd.Process.Kill()) })
		require.Equal(t, -1, r.code, r.stderr)
		eventually(t.Context(), t, func() error {
			if phase := migration("status.phase"); phase != "DestinationFinalize" {
				return fmt.Errorf("the migration is in phase %s", phase)
			}
			return nil
		})
	})
	step(t, "the shard with the copy is restarted", func(t *testing.T) {
		s.running(t)[s.name+"-shard-beta"].kill(t)
		s.up(t)
		require.Equal(t, "DestinationFinalize", migration("status.phase"))
	})
	step(t, "what cannot be compared stays closed", func(t *testing.T) {
		noted := migration(`metadata.annotations.kcpctl\.dev/content`)
		name := migration("metadata.name")
		s.kubectl(t, "annotate", "logicalclustermigrations", name, "kcpctl.dev/content-").ok(t)
		cluster := migration("spec.logicalCluster")
		s.kcpctl(t, "remove-shard", "alpha", "--drain", "--yes").refused(t, 1, "move root:eu to shard beta: ",
			"so it stays closed on shard beta", "--allow-unverified-copy root:eu", "--workspace "+cluster)
		looking := []string{"--user", "me", "--group", "system:masters", "--target", "shard/beta", "--workspace", cluster}
		look := s.command("kubeconfig", append(looking, "--", "kubectl", "get", "configmaps", "--output", "name")...)
		require.Contains(t, look.run(t.Context(), t).ok(t).stdout, "configmap/written-")
		s.kubectl(t, "annotate", "logicalclustermigrations", name, "kcpctl.dev/content="+noted).ok(t)
	})
	step(t, "the next run compares the copy", func(t *testing.T) {
		// The events, because the log leaves out a reason that does not last.
		r := s.kcpctl(t, "remove-shard", "alpha", "--drain", "--purge", "--yes", "--output", "json").ok(t)
		require.Contains(t, r.stderr+r.stdout, "shard beta: the shard has forgotten the move")
	})
	w.writeMore(t, 50)
	w.stop()
	w.check(t, "eu")
	t.Logf("%d writes acknowledged, %d refused", w.acknowledged, w.refused)
	step(t, "down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) })
}

// Only the leader of a shard's replicas knows what is being moved.
func TestClusterDrain(t *testing.T) {
	for replicas := range 3 {
		t.Run(fmt.Sprintf("%d replicas", replicas+1), func(t *testing.T) {
			testDrain(t, newCluster(t, "minimal"), "managed: {}", replicas+1)
		})
	}
}

// testDrain drains a shard while clients write. No acknowledged write may be lost, and a workspace stays in its region.
func testDrain(t *testing.T, s *setup, etcd string, replicas int) {
	s.text = fmt.Sprintf(drained, s.name, etcd, replicas)
	s.write(t, s.text)
	s.up(t)
	names := []string{"eu", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"}
	step(t, "workspaces on alpha", func(t *testing.T) {
		s.kcpctl(t, "cordon", "beta").ok(t)
		create := s.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.stdin = fmt.Sprintf(drainedWorkspace, "eu", "region: eu")
		for _, name := range names[1:] {
			create.stdin += fmt.Sprintf(drainedWorkspace, name, "tier: a")
		}
		create.run(t.Context(), t).ok(t)
		s.kubectl(t, slices.Concat([]string{"wait", "workspaces"}, names, []string{"--for=jsonpath={.status.phase}=Ready", "--timeout=5m"})...).ok(t)
		s.kcpctl(t, "uncordon", "beta").ok(t)
	})
	both := strings.Replace(s.text, "labels: {tier: a}}", "labels: {tier: a, region: eu}}", 1)
	for n := range *drains {
		from := []string{"alpha", "beta"}[n%2]
		w := startWriters(t, s, names)
		w.writeMore(t, 300)
		if n == 0 {
			step(t, "a workspace stays in its region", func(t *testing.T) {
				s.kcpctl(t, "remove-shard", from, "--drain", "--yes").
					refused(t, 1, "shard/alpha is not removed", `root:eu: its location selector "region=eu" matches no other shard`, "add-shard")
			})
		}
		step(t, "and moves with it from "+from, func(t *testing.T) {
			s.write(t, both)
			s.up(t)
			s.kcpctl(t, "remove-shard", from, "--drain", "--purge", "--yes").ok(t).quiet(t)
		})
		w.writeMore(t, 201)
		w.stop()
		for _, name := range names {
			w.check(t, name)
			w.remove(t, name)
		}
		t.Logf("%d replicas, drain %d: %d writes acknowledged, %d refused", replicas, n+1, w.acknowledged, w.refused)
		require.Greater(t, w.acknowledged, 500)
	}
	step(t, "nothing is left to do", func(t *testing.T) { s.up(t).changed(t, 0) })
	step(t, "down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) })
}

// writers create ConfigMaps, each with a connection of its own.
type writers struct {
	client *http.Client
	url    string
	stop   func()

	mu                    sync.Mutex
	written               map[string][]string // by workspace
	acknowledged, refused int
}

func startWriters(t *testing.T, s *setup, workspaces []string) *writers {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	c := s.command("kubeconfig")
	c.args = append([]string{"kubeconfig", "admin", "--file", s.file, "--output", file}, s.runtime.flags("")...)
	c.run(t.Context(), t).ok(t)
	config, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	require.NoError(t, os.Remove(file))
	tls, err := rest.TLSConfigFor(config)
	require.NoError(t, err)
	w := &writers{written: map[string][]string{}}
	w.url, _, _ = strings.Cut(config.Host, "/clusters/")
	w.client = &http.Client{Timeout: requestPatience, Transport: &http.Transport{
		TLSClientConfig: tls, DialContext: s.dialer(t), DisableKeepAlives: true,
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				w.write(workspaces[(6*i+n)%len(workspaces)], fmt.Sprintf("written-%d-%d", n, i))
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	w.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(w.stop)
	return w
}

// writeMore waits until n more writes are acknowledged.
func (w *writers) writeMore(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.acknowledged
	}
	until := count() + n
	eventually(t.Context(), t, func() error {
		if now := count(); now < until {
			return fmt.Errorf("%d writes are acknowledged, not %d", now, until)
		}
		return nil
	})
}

func (w *writers) path(workspace string) string {
	return w.url + "/clusters/root:" + workspace + "/api/v1/namespaces/default/configmaps"
}

func (w *writers) write(workspace, name string) {
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"written":"true"}}}`, name)
	resp, err := w.client.Post(w.path(workspace), "application/json", bytes.NewReader(body))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || resp.StatusCode != http.StatusCreated {
		w.refused++
	} else {
		w.acknowledged++
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

// check requires that all acknowledged writes are there.
func (w *writers) check(t *testing.T, workspace string) {
	t.Helper()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	eventually(t.Context(), t, func() error {
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

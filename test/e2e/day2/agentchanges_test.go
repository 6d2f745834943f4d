package day2

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// lastingShards are shards that keep their data when their pods are replaced.
const lastingShards = `
  etcd: {embedded: {storage: 1Gi}}
  shards: [{name: alpha}, {name: beta}]`

// TestClusterAgentChanges installs an agent with interruptions, and changes the kcp that it uses: its pod is never
// replaced.
func TestClusterAgentChanges(t *testing.T) {
	a, n := framework.NewAgentsInside(t, lastingShards)
	var pod string
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up without the agent", func(t *testing.T) {
			a.Write(t, a.Without())
			a.Up(t)
			n.Lead(t, a.Kcp)
			a.Write(t, a.Text)
		}},
		{"a user who may not create what the agent needs", a.MayNot},
		{"an APIExport of a user", a.ForeignExport},
		{"up is killed while it installs the agent", a.Killed},
		{"the next up completes it", func(t *testing.T) {
			a.Up(t)
			a.Serves(t, framework.Consumer, "first")
			a.Settled(t)
			a.Shown(t, 1)
			pod = podAgents(t, a)
		}},
		{"a new shard", func(t *testing.T) { newShard(t, a); require.Equal(t, pod, podAgents(t, a)) }},
		{"renewal", func(t *testing.T) { renews(t, a); require.Equal(t, pod, podAgents(t, a)) }},
		{"rotation", func(t *testing.T) { rotates(t, a); require.Equal(t, pod, podAgents(t, a)) }},
		{"deleted objects leave", func(t *testing.T) { a.Release(t, framework.Consumer, "first"); clearAgents(t, a) }},
		{"an agent that has missed a shard", a.MissesShard},
		{"an agent in use is removed with --orphan", a.Orphans},
		{"an agent in use is removed with its data", a.Prunes},
		{"down leaves nothing", a.LeavesNothing},
	} {
		framework.Step(t, part.name, part.do)
	}
}

// podAgents returns the UID of the agent's pod, and how often its container has been restarted.
func podAgents(t *testing.T, a *framework.Agents) string {
	t.Helper()
	r := a.Service.Kubectl("get", "pods", "--namespace", a.Service.Namespace, "--selector", framework.OfAgent,
		"--output", `jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
	out := r.Run(t.Context(), t).OK(t).Stdout
	require.Regexp(t, `^\S+ 0\n$`, out, "one pod, never restarted")
	return out
}

// clearAgents deletes all Widgets of the consumer.
func clearAgents(t *testing.T, a *framework.Agents) { a.Empties(t, metav1.ListOptions{}) }

// newShard adds a shard, and a workspace there that uses the APIExport.
func newShard(t *testing.T, a *framework.Agents) {
	a.Kcpctl(t, "add-shard", "gamma").OK(t).Quiet(t)
	raw, err := os.ReadFile(a.File)
	require.NoError(t, err)
	a.Text = strings.Replace(string(raw), "  workspaces:\n", "  workspaces:\n  - {name: late, selector: {name: gamma}}\n", 1)
	a.Text = strings.Replace(a.Text, "bind: [root:team]", "bind: [root:team, root:late]", 1)
	a.Write(t, a.Text)
	a.Up(t)
	a.IsOn(t, "late", "gamma")
	a.AllEndpoints(t, framework.Provider, a.Export(), 2) // those of beta and gamma
	a.Serves(t, "root:late", "late")
}

// renews renews the certificate of the agent while Widgets are written.
func renews(t *testing.T, a *framework.Agents) {
	before := a.Credential(t).Certificate[0]
	whileWriting(t, a, "renewed", 20, time.Second, func() { a.Certs(t, "renew", "agent/widgets").OK(t).Quiet(t) })
	require.NotEqual(t, before, a.Credential(t).Certificate[0])
}

// rotates replaces the authorities that the agent and its servers trust while Widgets are written.
func rotates(t *testing.T, a *framework.Agents) {
	authorities := []string{"server", "client", "--skip-canary", "--parallel", "3"}
	whileWriting(t, a, "rotated", 80, 3*time.Second, func() {
		a.Certs(t, "rotate-ca", authorities...).OK(t).Quiet(t)
		finish := a.CertsCommand("rotate-ca", append(authorities, "--finish", "--yes")...)
		finish.Limit = 2 * framework.Patience // it waits until the agent has read its files
		require.Contains(t, finish.Run(t.Context(), t).OK(t).Quiet(t).Stderr, "agent/widgets: changed files are read again within 6m30s")
	})
}

// whileWriting creates Widgets during a change, with a pause after each, and at least n of them. All must arrive.
func whileWriting(t *testing.T, a *framework.Agents, prefix string, n int, every time.Duration, change func()) {
	t.Helper()
	type result struct {
		names []string
		err   error
	}
	stop, written := make(chan struct{}), make(chan result, 1)
	go func() {
		names, err := writes(t.Context(), a, prefix, n, every, stop)
		written <- result{names, err}
	}()
	began := time.Now()
	change()
	took := time.Since(began)
	close(stop)
	w := <-written
	require.NoError(t, w.err)
	t.Logf("%d Widgets, during and after %s", len(w.names), took.Round(time.Second))
	below, namespace := a.Below(t), a.Namespace(t, framework.Consumer)
	began = time.Now()
	framework.Eventually(t.Context(), t, func() error {
		list, err := a.Of(below, namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(w.names), func(name string) bool {
			return slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool { return o.GetName() == name })
		})
		if len(missing) > 0 {
			return fmt.Errorf("%d Widgets have not arrived: %v", len(missing), missing)
		}
		return nil
	})
	t.Logf("all have arrived %s after the last one was written", time.Since(began).Round(10*time.Millisecond))
}

// writes creates Widgets, with a pause after each, until it is stopped, and then the rest of n without pauses. It
// retries, with a new credential: an earlier one does not outlive its authority.
func writes(ctx context.Context, a *framework.Agents, prefix string, n int, every time.Duration, stop <-chan struct{}) (names []string, err error) {
	client, err := a.Connect(ctx, framework.Consumer)
	if err != nil {
		return nil, err
	}
	for every > 0 || len(names) < n {
		name := fmt.Sprintf("%s-%03d", prefix, len(names))
		for {
			_, err := a.Of(client, "default").Create(ctx, a.Widget(name), metav1.CreateOptions{})
			if err == nil || apierrors.IsAlreadyExists(err) {
				break
			}
			if ctx.Err() != nil {
				return names, fmt.Errorf("Widget %s: %w", name, err)
			}
			time.Sleep(framework.Pause)
			if fresh, err := a.Connect(ctx, framework.Consumer); err == nil {
				client = fresh
			}
		}
		names = append(names, name)
		select {
		case <-stop:
			every = 0
		case <-time.After(every):
		}
	}
	return names, nil
}

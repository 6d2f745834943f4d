//go:build e2e && long && day2

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// lastingShards are shards that keep their data when their pods are replaced.
const lastingShards = `
  etcd: {embedded: {storage: 1Gi}}
  shards: [{name: alpha}, {name: beta}]`

// TestClusterAgentChanges installs an agent with interruptions, and changes the kcp that it uses: its pod is never
// replaced.
func TestClusterAgentChanges(t *testing.T) {
	a, n := newAgentsInside(t, lastingShards)
	var pod string
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up without the agent", func(t *testing.T) {
			a.write(t, a.without())
			a.up(t)
			n.lead(t, a.kcp)
			a.write(t, a.text)
		}},
		{"a user who may not create what the agent needs", a.mayNot},
		{"an APIExport of a user", a.foreignExport},
		{"up is killed while it installs the agent", a.killed},
		{"the next up completes it", func(t *testing.T) {
			a.up(t)
			a.serves(t, consumer, "first")
			a.settled(t)
			a.shown(t, 1)
			pod = a.pod(t)
		}},
		{"the time until an object arrives", a.latency},
		{"a new shard", func(t *testing.T) { a.newShard(t); require.Equal(t, pod, a.pod(t)) }},
		{"renewal", func(t *testing.T) { a.renews(t); require.Equal(t, pod, a.pod(t)) }},
		{"rotation", func(t *testing.T) { a.rotates(t); require.Equal(t, pod, a.pod(t)) }},
		{"deleted objects leave", func(t *testing.T) { a.release(t, consumer, "first"); a.clear(t) }},
		{"an agent that has missed a shard", a.missesShard},
		{"an agent in use is removed with --orphan", a.orphans},
		{"an agent in use is removed with its data", a.prunes},
		{"down leaves nothing", a.leavesNothing},
	} {
		step(t, part.name, part.do)
	}
}

// killed kills up at several moments after it has begun to write the objects of the agent.
func (a *agents) killed(t *testing.T) {
	for _, after := range []time.Duration{0, 150 * time.Millisecond, 400 * time.Millisecond, time.Second} {
		r := a.command("up", "--output", "json", "--skip-canary").during(t, 1, running("agent/widgets"), func(up *exec.Cmd) {
			time.Sleep(after)
			require.NoError(t, up.Process.Kill())
		})
		if after > 0 && r.code == 0 { // what earlier runs have started was ready at once
			t.Logf("up was done before %s", after)
			continue
		}
		require.Equal(t, -1, r.code, r.stderr)
	}
}

// pod returns the UID of the agent's pod, and how often its container has been restarted.
func (a *agents) pod(t *testing.T) string {
	t.Helper()
	r := a.service.kubectl("get", "pods", "--namespace", a.service.namespace, "--selector", ofAgent,
		"--output", `jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
	out := r.run(t.Context(), t).ok(t).stdout
	require.Regexp(t, `^\S+ 0\n$`, out, "one pod, never restarted")
	return out
}

// latency logs the time from the creation of an object in a workspace on beta until its copy is on the service cluster.
// The clients of the agent allow themselves five requests a second for a kind in a workspace, so it is measured at a
// slow rate, and without pauses. The machine must do nothing else: run.sh -run
// 'TestClusterAgentChanges$/^(up_without|the_next|the_time|deleted_objects|down_leaves)'.
func (a *agents) latency(t *testing.T) {
	client, below, namespace := a.of(a.in(t, consumer), "default"), a.below(t), a.namespace(t, consumer)
	copies, err := a.of(below, namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer copies.Stop()
	const n = 200
	for _, pause := range []time.Duration{time.Second, 0} {
		var took []time.Duration
		for i := range n {
			time.Sleep(pause)
			name := fmt.Sprintf("timed-%d-%03d", pause.Milliseconds(), i)
			began := time.Now()
			_, err := client.Create(t.Context(), a.widget(name), metav1.CreateOptions{})
			require.NoError(t, err)
			require.True(t, added(copies, name), "the watch has ended")
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("from create to the object in the service cluster: P50 %s, P99 %s, of %d with pauses of %s", took[n/2-1].Round(time.Millisecond),
			took[n*99/100-1].Round(time.Millisecond), n, pause)
	}
	a.empties(t, metav1.ListOptions{FieldSelector: "metadata.name!=first"})
}

// added waits until an object is created.
func added(w watch.Interface, name string) bool {
	for event := range w.ResultChan() {
		if o, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == watch.Added && o.GetName() == name {
			return true
		}
	}
	return false
}

// clear deletes all Widgets of the consumer.
func (a *agents) clear(t *testing.T) { a.empties(t, metav1.ListOptions{}) }

// empties deletes Widgets of the consumer, and waits until they and their copies are gone.
func (a *agents) empties(t *testing.T, which metav1.ListOptions) {
	t.Helper()
	client, copies := a.of(a.in(t, consumer), "default"), a.of(a.below(t), a.namespace(t, consumer))
	require.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, which))
	for _, in := range []dynamic.ResourceInterface{client, copies} {
		eventually(t.Context(), t, func() error {
			list, err := in.List(t.Context(), which)
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("%d Widgets are still there", len(list.Items))
			}
			return err
		})
	}
}

// newShard adds a shard, and a workspace there that uses the APIExport.
func (a *agents) newShard(t *testing.T) {
	a.kcpctl(t, "add-shard", "gamma").ok(t).quiet(t)
	raw, err := os.ReadFile(a.file)
	require.NoError(t, err)
	a.text = strings.Replace(string(raw), "  workspaces:\n", "  workspaces:\n  - {name: late, selector: {name: gamma}}\n", 1)
	a.text = strings.Replace(a.text, "bind: [root:team]", "bind: [root:team, root:late]", 1)
	a.write(t, a.text)
	a.up(t)
	a.isOn(t, "late", "gamma")
	a.allEndpoints(t, provider, a.export(), 2) // those of beta and gamma
	a.serves(t, "root:late", "late")
}

// renews renews the certificate of the agent while Widgets are written.
func (a *agents) renews(t *testing.T) {
	before := a.credential(t).Certificate[0]
	a.whileWriting(t, "renewed", 20, time.Second, func() { a.certs(t, "renew", "agent/widgets").ok(t).quiet(t) })
	require.NotEqual(t, before, a.credential(t).Certificate[0])
}

// rotates replaces the authorities that the agent and its servers trust while Widgets are written.
func (a *agents) rotates(t *testing.T) {
	authorities := []string{"server", "client", "--skip-canary", "--parallel", "3"}
	a.whileWriting(t, "rotated", 80, 3*time.Second, func() {
		a.certs(t, "rotate-ca", authorities...).ok(t).quiet(t)
		finish := a.certsCommand("rotate-ca", append(authorities, "--finish", "--yes")...)
		finish.limit = 2 * patience // it waits until the agent has read its files
		require.Contains(t, finish.run(t.Context(), t).ok(t).quiet(t).stderr, "agent/widgets: changed files are read again within 6m30s")
	})
}

// whileWriting creates Widgets during a change, with a pause after each, and at least n of them. All must arrive.
func (a *agents) whileWriting(t *testing.T, prefix string, n int, every time.Duration, change func()) {
	t.Helper()
	type result struct {
		names []string
		err   error
	}
	stop, written := make(chan struct{}), make(chan result, 1)
	go func() {
		names, err := a.writes(t.Context(), prefix, n, every, stop)
		written <- result{names, err}
	}()
	began := time.Now()
	change()
	took := time.Since(began)
	close(stop)
	w := <-written
	require.NoError(t, w.err)
	t.Logf("%d Widgets, during and after %s", len(w.names), took.Round(time.Second))
	below, namespace := a.below(t), a.namespace(t, consumer)
	began = time.Now()
	eventually(t.Context(), t, func() error {
		list, err := a.of(below, namespace).List(t.Context(), metav1.ListOptions{})
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
func (a *agents) writes(ctx context.Context, prefix string, n int, every time.Duration, stop <-chan struct{}) (names []string, err error) {
	client, err := a.connect(ctx, consumer)
	if err != nil {
		return nil, err
	}
	for every > 0 || len(names) < n {
		name := fmt.Sprintf("%s-%03d", prefix, len(names))
		for {
			_, err := a.of(client, "default").Create(ctx, a.widget(name), metav1.CreateOptions{})
			if err == nil || apierrors.IsAlreadyExists(err) {
				break
			}
			if ctx.Err() != nil {
				return names, fmt.Errorf("Widget %s: %w", name, err)
			}
			time.Sleep(pause)
			if fresh, err := a.connect(ctx, consumer); err == nil {
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

package roots

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// kcp is asked less and less often to apply the claims of a binding, each binding for itself.
func TestDelaysOfBindings(t *testing.T) {
	b, now := newBinder(), time.Now()
	one, other := binding{"1a", "cluster-c1"}, binding{"1a", "cluster-c2"}
	require.Equal(t, firstBind, b.due(one, now), "it was written a moment ago")
	var asked []time.Duration
	for at := now; at.Before(now.Add(5 * time.Minute)); at = at.Add(time.Second) {
		if b.due(one, at) == 0 {
			asked = append(asked, at.Sub(now))
		}
	}
	s := time.Second
	require.Equal(t, []time.Duration{s, 3 * s, 7 * s, 15 * s, 31 * s, 63 * s, 123 * s, 183 * s, 243 * s}, asked)
	require.Equal(t, firstBind, b.due(other, now))
	b.settled(one)
	require.Equal(t, firstBind, b.due(one, now), "the next time begins with the first delay")
	b.forget("1a")
	require.Empty(t, b.next)
}

// The first decision for a cluster asks for its binding, once. It is ready when kcp has applied the claims.
func TestNeedBinding(t *testing.T) {
	s := known(t)
	b := s.binder
	ask := func(ready bool, queued int, clusters ...string) {
		t.Helper()
		require.Equal(t, ready, s.needBinding("1a", clusters))
		require.Equal(t, queued, b.queue.Len())
		for range queued {
			i, _ := b.queue.Get()
			require.Equal(t, "1a", i)
			b.queue.Done(i)
		}
	}
	ask(true, 0)
	ask(false, 1, "c1", "c2")
	ask(false, 0, "c1", "c2")
	exports := map[string][]any{"cluster-c1": nil, "cluster-c2": nil, "cluster-c9": nil}
	for i := range 10 * schedule.NearClusters {
		exports[fmt.Sprint("cluster-other-", i)] = nil
	}
	require.Subset(t, s.wantedBindings("1a", exports), []string{"cluster-c1", "cluster-c2"})
	require.LessOrEqual(t, len(s.wantedBindings("1a", exports)), schedule.NearClusters+2)
	require.Len(t, s.wantedBindings("1b", exports), schedule.NearClusters, "a workspace that uses none has those of the clusters that it prefers")
	require.Len(t, s.wantedBindings("1b", map[string][]any{"cluster-c1": nil, "cluster-c2": nil}), 2, "and all, if there are few")

	b.applied["1a"] = map[string]bool{"c1": true, "c2": false}
	ask(true, 0, "c1")
	ask(false, 0, "c1", "c2")

	b.usable = func(workspace, cluster string) bool { return cluster != "c1" }
	require.NotContains(t, s.wantedBindings("1a", exports), "cluster-c1", "a label does not give access to a cluster that may not be used")
	require.Len(t, s.wantedBindings("1b", map[string][]any{"cluster-c1": nil, "cluster-c2": nil}), 1)

	for i := range 100 {
		s.needBinding("1c", []string{fmt.Sprint("made-up-", i)})
	}
	s.wantedBindings("1c", exports)
	require.Empty(t, b.needed["1c"], "names that users make up are not kept")
}

// The scheduler locks itself and then the binder when an object changes. What says which clusters a workspace may use
// locks the scheduler, so the binder is not locked then.
func TestTheBinderIsNotLockedBeforeTheScheduler(t *testing.T) {
	s := known(t)
	asked := 0
	s.binder.usable = func(string, string) bool {
		require.True(t, s.binder.mu.TryLock())
		s.binder.mu.Unlock()
		asked++
		return true
	}
	require.Len(t, s.wantedBindings("1a", map[string][]any{"cluster-c1": nil, "cluster-c2": nil}), 2)
	require.Equal(t, 2, asked)
}

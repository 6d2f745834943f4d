package roots

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// kcp is asked less and less often to apply the claims of a binding. The binding itself has when, so that the next
// controller continues.
func TestDelaysOfBindings(t *testing.T) {
	now, s := time.Now(), time.Second
	o := kcpapi.APIBinding.New("cluster-c1")
	at := func(value string) { o.SetAnnotations(map[string]string{annotationRetried: value}) }
	at(retried(now, 0))
	var asked []time.Duration
	for when := now; when.Before(now.Add(5 * time.Minute)); when = when.Add(s) {
		if wait, n := due(o, when); wait <= 0 {
			asked = append(asked, when.Sub(now))
			at(retried(when, n+1))
		}
	}
	require.Equal(t, []time.Duration{s, 3 * s, 7 * s, 15 * s, 31 * s, 63 * s, 123 * s, 183 * s, 243 * s}, asked)
	at(retried(now.Add(-time.Hour), 9))
	wait, n := due(o, now)
	require.Negative(t, wait)
	require.Zero(t, n, "the next time begins with the first delay")
	for _, value := range []string{"", "yesterday=x", retried(now.Add(-time.Hour), -1), retried(now.Add(time.Hour), 1<<40)} {
		at(value)
		o.SetCreationTimestamp(metav1.NewTime(now))
		wait, _ := due(o, now)
		require.LessOrEqual(t, wait, lastBind, value)
		require.Positive(t, wait, "it was written a moment ago")
	}
}

// A workspace has bindings for the clusters that it prefers, and for those of its leaves, but not for names that users
// make up, nor for clusters that it may not use.
func TestWantedBindings(t *testing.T) {
	s := known(t)
	b := s.binder
	exports := map[string][]any{"cluster-c1": nil, "cluster-c2": nil, "cluster-c9": nil}
	for i := range 10 * schedule.NearClusters {
		exports[fmt.Sprint("cluster-other-", i)] = nil
	}
	require.Contains(t, b.wanted("1a", exports), "cluster-c1", "it has leaves")
	require.LessOrEqual(t, len(b.wanted("1a", exports)), schedule.NearClusters+1)
	require.Len(t, b.wanted("1b", exports), schedule.NearClusters, "a workspace that uses none has those of the clusters that it prefers")
	two := map[string][]any{"cluster-c1": nil, "cluster-c2": nil}
	require.Len(t, b.wanted("1b", two), 2, "and all, if there are few")
	b.change(func(f *facts) {
		c := *f.Clusters[0]
		c.Spec.WorkspaceSelector = &v1alpha1.WorkspaceSelector{Paths: []string{"root:other"}}
		f.Clusters = []*api.Cluster{&c, f.Clusters[1]}
	})
	require.NotContains(t, b.wanted("1a", exports), "cluster-c1", "a label does not give access to a cluster that may not be used")
	require.Equal(t, []string{"cluster-c2"}, b.wanted("1b", two))
}

// The first leaf for a cluster leads to its binding, and one that is gone to all of its workspace.
func TestWhatLeadsToABinding(t *testing.T) {
	s := known(t)
	next := func(want binding) {
		t.Helper()
		require.Equal(t, 1, s.binder.queue.Len())
		at, _ := s.binder.queue.Get()
		s.binder.queue.Done(at)
		require.Equal(t, want, at)
	}
	s.changed(s.view.facts().Published.Scheduled[0], watch.Key{Cluster: "1a", Namespace: "shop", Name: "web-0--c1"})
	next(binding{"1a", "cluster-c1"})
	s.changed(s.view.facts().Published.Scheduled[0], watch.Key{Cluster: "1a", Namespace: "shop", Name: "web-0"})
	require.Zero(t, s.binder.queue.Len())
	s.changed(kcpapi.APIBinding.GVR(), watch.Key{Cluster: "1a", Name: "cluster-c1"})
	next(binding{workspace: "1a"})
}

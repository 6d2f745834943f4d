package schedule_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// many returns the names of clusters, which differ in their last characters only.
func many(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("cluster-%03d", i))
	}
	return out
}

// Workspaces use all clusters of a large fleet about equally, and each of them uses few.
func TestNear(t *testing.T) {
	const workspaces = 1000
	fleet, used := many(100), map[string]int{}
	for w := range workspaces {
		near := schedule.Near(fmt.Sprint("ws", w), fleet)
		require.Len(t, near, schedule.NearClusters)
		for _, c := range near {
			used[c]++
		}
	}
	require.Len(t, used, len(fleet))
	for c, n := range used {
		require.InDelta(t, workspaces*schedule.NearClusters/len(fleet), n, 60, c)
	}
	require.ElementsMatch(t, many(3), schedule.Near("ws", many(3)))
	require.Equal(t, schedule.Near("ws", fleet), schedule.Near("ws", fleet))
}

// A cluster that joins a fleet replaces at most one of those that a workspace prefers.
func TestNearIsSteady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, workspace := rapid.IntRange(11, 60).Draw(t, "clusters"), rapid.String().Draw(t, "workspace")
		before, after := schedule.Near(workspace, many(n)), schedule.Near(workspace, many(n+1))
		left := slices.DeleteFunc(slices.Clone(before), func(c string) bool { return slices.Contains(after, c) })
		require.LessOrEqual(t, len(left), 1)
	})
}

func roomy(cpu string, names ...string) (out []schedule.Cluster) {
	for _, name := range names {
		out = append(out, with(ready(name), func(c *schedule.Cluster) { c.Free = free(cpu, "100") }))
	}
	return out
}

// In a large fleet, workloads run on the clusters that their workspace prefers, as long as these have room.
func TestWorkloadsPreferNearClusters(t *testing.T) {
	fleet := many(40)
	near := schedule.Near("ws", fleet)
	change := func(n int64, how func(*schedule.Workload)) schedule.Workload {
		w := divided(n)
		w.Workspace = "ws"
		how(&w)
		return w
	}
	plain := func(*schedule.Workload) {}
	single := func(w *schedule.Workload) { w.Hints.Spread = schedule.Single }
	for name, tc := range map[string]struct {
		workload schedule.Workload
		clusters []schedule.Cluster
		previous map[string]int64
		// clusters of the goal: so many, of which so many are near.
		want, near int
	}{
		"many replicas":                {workload: change(100, plain), clusters: roomy("100", fleet...), want: 10, near: 10},
		"unknown capacity":             {workload: change(100, plain), clusters: clustersOf(fleet...), want: 10, near: 10},
		"those that fit nowhere else":  {workload: change(1500, plain), clusters: roomy("100", fleet...), want: 15, near: 10},
		"more than there is room":      {workload: change(9000, plain), clusters: roomy("100", fleet...), want: 40, near: 10},
		"the user allows more":         {workload: change(100, func(w *schedule.Workload) { w.Hints.MaxClusters = 25 }), clusters: roomy("100", fleet...), want: 25, near: 10},
		"each cluster":                 {workload: change(1, func(w *schedule.Workload) { w.Hints.Spread = schedule.Duplicate }), clusters: roomy("100", fleet...), want: 40, near: 10},
		"what runs elsewhere stays":    {workload: change(12, plain), clusters: roomy("100", fleet...), previous: elsewhere(fleet, near, 12), want: 12, near: 0},
		"one cluster":                  {workload: change(5, single), clusters: roomy("100", fleet...), want: 1, near: 1},
		"one cluster that is not near": {workload: change(500, single), clusters: append(roomy("100", near...), with(ready(others(fleet, near)[0]), func(c *schedule.Cluster) { c.Free = free("1000", "1000") })), want: 1, near: 0},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.workload.Hints.Spread == schedule.Single {
				tc.workload.Requests = corev1.ResourceList{}
			}
			goal := schedule.Assign(tc.workload, tc.clusters, shares(tc.previous), 0).Goal
			isNear := 0
			for c := range goal {
				if slices.Contains(near, c) {
					isNear++
				}
			}
			require.Len(t, goal, tc.want)
			require.Equal(t, tc.near, isNear, "%v", goal)
		})
	}
}

func clustersOf(names ...string) (out []schedule.Cluster) {
	for _, name := range names {
		out = append(out, ready(name))
	}
	return out
}

// others returns the clusters that are not near.
func others(fleet, near []string) []string {
	return slices.DeleteFunc(slices.Clone(fleet), func(c string) bool { return slices.Contains(near, c) })
}

// elsewhere returns shares of one replica on so many clusters that are not near.
func elsewhere(fleet, near []string, n int) map[string]int64 {
	out := map[string]int64{}
	for _, c := range others(fleet, near)[:n] {
		out[c] = 1
	}
	return out
}

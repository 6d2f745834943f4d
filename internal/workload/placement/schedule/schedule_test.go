package schedule_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// ready returns a cluster that can run everything.
func ready(name string) schedule.Cluster {
	return schedule.Cluster{Name: name, Ready: true, Settled: true, Labels: map[string]string{"name": name}, API: api.APIStatus{State: api.APIPublished}}
}

func with(c schedule.Cluster, change func(*schedule.Cluster)) schedule.Cluster {
	change(&c)
	return c
}

func free(cpu, pods string) corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse(pods)}
}

func divided(replicas int64) schedule.Workload {
	return schedule.Workload{Key: "ws/ns/web", Replicas: replicas, Hints: schedule.Hints{Spread: schedule.Divide}}
}

func shares(pairs map[string]int64) map[string]schedule.Share {
	all := map[string]schedule.Share{}
	for name, n := range pairs {
		all[name] = schedule.Share{Replicas: n, Available: n}
	}
	return all
}

func replicas(next map[string]schedule.Share) map[string]int64 {
	all := map[string]int64{}
	for name, s := range next {
		all[name] = s.Replicas
	}
	return all
}

func TestGoal(t *testing.T) {
	type numbers = map[string]int64
	c1, c2, c3 := ready("c1"), ready("c2"), ready("c3")
	selector, err := labels.Parse("name in (c2)")
	require.NoError(t, err)
	hints := func(n int64, change func(*schedule.Workload)) schedule.Workload {
		w := divided(n)
		change(&w)
		return w
	}
	for name, tc := range map[string]struct {
		workload schedule.Workload
		clusters []schedule.Cluster
		previous numbers
		want     numbers
		unplaced int64
		message  string
	}{
		"even":                          {workload: divided(4), clusters: []schedule.Cluster{c1, c2}, want: numbers{"c1": 2, "c2": 2}},
		"the remainder stays":           {workload: divided(5), clusters: []schedule.Cluster{c1, c2}, previous: numbers{"c1": 2, "c2": 3}, want: numbers{"c1": 2, "c2": 3}},
		"the remainder stays elsewhere": {workload: divided(5), clusters: []schedule.Cluster{c1, c2}, previous: numbers{"c1": 3, "c2": 2}, want: numbers{"c1": 3, "c2": 2}},
		"weights": {workload: hints(6, func(w *schedule.Workload) { w.Hints.Weights = numbers{"c1": 2, "c2": 1} }),
			clusters: []schedule.Cluster{c1, c2, c3}, want: numbers{"c1": 4, "c2": 2}},
		"the remainder stays with the one of the smaller weight": {workload: hints(6, func(w *schedule.Workload) { w.Hints.Weights = numbers{"c1": 3, "c2": 1} }),
			clusters: []schedule.Cluster{c1, c2}, previous: numbers{"c1": 4, "c2": 2}, want: numbers{"c1": 4, "c2": 2}},
		"capacity": {workload: hints(6, func(w *schedule.Workload) { w.Requests = corev1.ResourceList{"cpu": resource.MustParse("500m")} }),
			clusters: []schedule.Cluster{
				with(c1, func(c *schedule.Cluster) { c.Free = free("4", "100") }),
				with(c2, func(c *schedule.Cluster) { c.Free = free("2", "100") }),
				with(c3, func(c *schedule.Cluster) { c.Free = free("9", "0") }),
			}, want: numbers{"c1": 4, "c2": 2}},
		"capacity changes a little": {workload: divided(10), previous: numbers{"c1": 5, "c2": 5},
			clusters: []schedule.Cluster{
				with(c1, func(c *schedule.Cluster) { c.Free = free("4", "55") }),
				with(c2, func(c *schedule.Cluster) { c.Free = free("4", "45") }),
			}, want: numbers{"c1": 5, "c2": 5}},
		"no room": {workload: divided(2), clusters: []schedule.Cluster{
			with(c1, func(c *schedule.Cluster) { c.Free = free("4", "0") }), with(c2, func(c *schedule.Cluster) { c.Free = free("4", "0") }),
		}, want: numbers{"c1": 1, "c2": 1}, message: "no cluster has room for another replica"},
		"no room beside what is cordoned": {workload: divided(6), previous: numbers{"c2": 5}, clusters: []schedule.Cluster{
			with(c1, func(c *schedule.Cluster) { c.Free = free("4", "0") }),
			with(c2, func(c *schedule.Cluster) { c.Unschedulable, c.Free = true, free("4", "100") }),
		}, want: numbers{"c1": 1, "c2": 5}, message: "no cluster has room for another replica"},
		"rebalanced without room beside what is cordoned": {
			workload: hints(3, func(w *schedule.Workload) { w.Rebalance = true }), previous: numbers{"c2": 3}, clusters: []schedule.Cluster{
				with(c1, func(c *schedule.Cluster) { c.Free = free("4", "0") }),
				with(c2, func(c *schedule.Cluster) { c.Unschedulable, c.Free = true, free("4", "100") }),
			}, want: numbers{"c2": 3}},
		"cordoned keeps what it has": {workload: divided(9), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Unschedulable = true })}, want: numbers{"c1": 7, "c2": 2}},
		"cordoned and scaled down": {workload: divided(2), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Unschedulable = true })}, want: numbers{"c1": 1, "c2": 1}},
		"all cordoned": {workload: divided(5), previous: numbers{"c1": 2},
			clusters: []schedule.Cluster{with(c1, func(c *schedule.Cluster) { c.Unschedulable = true })}, want: numbers{"c1": 2}, unplaced: 3,
			message: "3 replicas wait for a cluster that accepts new ones"},
		"drained": {workload: divided(4), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Draining = true })}, want: numbers{"c1": 4}},
		"not ready for a short time": {workload: divided(4), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Ready = false })}, want: numbers{"c1": 2, "c2": 2}},
		"lost": {workload: divided(4), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Ready, c.Lost = false, true })}, want: numbers{"c1": 4}},
		"has become incompatible": {workload: divided(6), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.API.State = api.APIIncompatible })}, want: numbers{"c1": 4, "c2": 2}},
		"selector": {workload: hints(3, func(w *schedule.Workload) { w.Hints.ClusterSelector = selector }),
			clusters: []schedule.Cluster{c1, c2}, want: numbers{"c2": 3}},
		"affinity": {workload: hints(3, func(w *schedule.Workload) { w.Hints.Affinity, w.Affine = selector, map[string]bool{"c1": true} }),
			clusters: []schedule.Cluster{c1, c2}, want: numbers{"c1": 3}},
		"anti-affinity": {workload: hints(3, func(w *schedule.Workload) { w.Hints.AntiAffinity, w.AntiAffine = selector, map[string]bool{"c1": true} }),
			clusters: []schedule.Cluster{c1, c2}, want: numbers{"c2": 3}},
		"a cluster that joins gets none of what runs": {workload: divided(4), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, c2, c3}, want: numbers{"c1": 2, "c2": 2}},
		"a cluster that joins gets what is missing": {workload: divided(6), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, c2, c3}, want: numbers{"c1": 2, "c2": 2, "c3": 2}},
		"rebalanced": {workload: hints(6, func(w *schedule.Workload) { w.Rebalance = true }), previous: numbers{"c1": 3, "c2": 3},
			clusters: []schedule.Cluster{c1, c2, c3}, want: numbers{"c1": 2, "c2": 2, "c3": 2}},
		"one replica does not follow the room": {workload: divided(1), previous: numbers{"c1": 1},
			clusters: []schedule.Cluster{
				with(c1, func(c *schedule.Cluster) { c.Free = free("4", "99") }), with(c2, func(c *schedule.Cluster) { c.Free = free("4", "101") }),
			}, want: numbers{"c1": 1}},
		"rebalanced for hardly any room": {workload: hints(1, func(w *schedule.Workload) { w.Rebalance = true }), previous: numbers{"c1": 1},
			clusters: []schedule.Cluster{
				with(c1, func(c *schedule.Cluster) { c.Free = free("4", "99") }), with(c2, func(c *schedule.Cluster) { c.Free = free("4", "101") }),
			}, want: numbers{"c1": 1}},
		"rebalanced over more clusters": {workload: hints(3, func(w *schedule.Workload) { w.Rebalance = true }), previous: numbers{"c1": 3},
			clusters: []schedule.Cluster{
				with(c1, func(c *schedule.Cluster) { c.Free = free("4", "97") }), with(c2, func(c *schedule.Cluster) { c.Free = free("4", "99") }),
			}, want: numbers{"c1": 2, "c2": 1}},
		"rebalanced for much room": {workload: hints(1, func(w *schedule.Workload) { w.Rebalance = true }), previous: numbers{"c1": 1},
			clusters: []schedule.Cluster{
				with(c1, func(c *schedule.Cluster) { c.Free = free("4", "50") }), with(c2, func(c *schedule.Cluster) { c.Free = free("4", "101") }),
			}, want: numbers{"c2": 1}},
		"drained without another cluster": {workload: divided(4), previous: numbers{"c1": 4},
			clusters: []schedule.Cluster{with(c1, func(c *schedule.Cluster) { c.Draining = true })}, want: numbers{}, unplaced: 4,
			message: "none of 1 clusters can run it: it is drained"},
		"its Cluster does not exist": {workload: divided(4), previous: numbers{"c1": 2, "c2": 2}, clusters: []schedule.Cluster{c1}, want: numbers{"c1": 4}},
		"the Cluster of its data does not exist": {workload: hints(4, func(w *schedule.Workload) { w.Pinned = true }), previous: numbers{"c2": 4},
			clusters: []schedule.Cluster{c1}, want: numbers{"c2": 4},
			message: "there is no Cluster c2, which has the workload or its data: register it again, or delete the workload and its volume claims if the cluster is lost"},
		"the workspace may not use it": {workload: divided(4), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Access = schedule.Refused })}, want: numbers{"c1": 4}},
		"it is not known whether the workspace may use it": {workload: divided(6), previous: numbers{"c1": 2, "c2": 2},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Access = schedule.Unknown })}, want: numbers{"c1": 4, "c2": 2}},
		"the affinity ends": {workload: hints(3, func(w *schedule.Workload) { w.Hints.Affinity = selector }), previous: numbers{"c1": 3},
			clusters: []schedule.Cluster{c1}, want: numbers{"c1": 3}},
		"max-clusters": {workload: hints(4, func(w *schedule.Workload) { w.Hints.MaxClusters = 2 }), previous: numbers{"c2": 2, "c3": 2},
			clusters: []schedule.Cluster{c1, c2, c3}, want: numbers{"c2": 2, "c3": 2}},
		"duplicate": {workload: hints(3, func(w *schedule.Workload) { w.Hints.Spread = schedule.Duplicate }),
			clusters: []schedule.Cluster{c1, c2}, want: numbers{"c1": 3, "c2": 3}},
		"single stays": {workload: hints(3, func(w *schedule.Workload) { w.Hints.Spread = schedule.Single }), previous: numbers{"c2": 3},
			clusters: []schedule.Cluster{c1, c2, c3}, want: numbers{"c2": 3}},
		"single fails over": {workload: hints(3, func(w *schedule.Workload) { w.Hints.Spread = schedule.Single }), previous: numbers{"c2": 3},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Lost = true })}, want: numbers{"c1": 3}},
		"single with data": {workload: hints(3, func(w *schedule.Workload) { w.Hints.Spread, w.Pinned = schedule.Single, true }), previous: numbers{"c2": 3},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Lost = true })}, want: numbers{"c2": 3}},
		"single that has finished": {workload: hints(1, func(w *schedule.Workload) { w.Hints.Spread, w.Finished = schedule.Single, true }), previous: numbers{"c2": 1},
			clusters: []schedule.Cluster{c1, with(c2, func(c *schedule.Cluster) { c.Draining = true })}, want: numbers{"c2": 1}},
		"scaled to zero":  {workload: divided(0), previous: numbers{"c1": 1, "c2": 1}, clusters: []schedule.Cluster{c1, c2}, want: numbers{"c1": 0, "c2": 0}},
		"created at zero": {workload: divided(0), clusters: []schedule.Cluster{c2}, want: numbers{"c2": 0}},
		"no candidate": {workload: divided(3), clusters: []schedule.Cluster{with(c1, func(c *schedule.Cluster) { c.Ready = false })},
			want: numbers{}, unplaced: 3, message: "none of 1 clusters can run it: it is not ready"},
		"no cluster": {workload: divided(3), want: numbers{}, unplaced: 3, message: "there are no clusters: add one with kcpctl cluster add"},
	} {
		t.Run(name, func(t *testing.T) {
			d := schedule.Assign(tc.workload, tc.clusters, shares(tc.previous), 0)
			require.Equal(t, tc.want, d.Goal, "%+v", d.Verdicts)
			require.Equal(t, tc.unplaced, d.Unplaced)
			require.Equal(t, tc.message, d.Message)
		})
	}
}

func TestVerdictsHaveReasons(t *testing.T) {
	d := schedule.Assign(divided(2), []schedule.Cluster{
		with(ready("c3"), func(c *schedule.Cluster) {
			c.API = api.APIStatus{State: api.APIIncompatible, Message: "spec.foo: the field is missing"}
		}),
		ready("c1"), with(ready("c2"), func(c *schedule.Cluster) { c.Unschedulable = true }),
		with(ready("c4"), func(c *schedule.Cluster) { c.Ready, c.Lost, c.Problem = false, true, "Unreachable" }),
		with(ready("c5"), func(c *schedule.Cluster) { c.Ready, c.Problem = false, "Unreachable" }),
		with(ready("c6"), func(c *schedule.Cluster) { c.Ready = false }),
	}, nil, 0)
	require.Equal(t, []schedule.Verdict{
		{Cluster: "c1", Chosen: true, Reason: "is a candidate", Goal: 2, Replicas: 2},
		{Cluster: "c2", Reason: "it is cordoned"},
		{Cluster: "c3", Reason: "Incompatible: spec.foo: the field is missing"},
		{Cluster: "c4", Reason: "it is not ready (Unreachable) for longer than evictAfter"},
		{Cluster: "c5", Reason: "it is not ready (Unreachable)"},
		{Cluster: "c6", Reason: "it is not ready"},
	}, d.Verdicts)
}

func TestSinglesAreSpread(t *testing.T) {
	counts := map[string]int64{}
	for i := range 100 {
		w := divided(1)
		w.Key = fmt.Sprint(i)
		for name := range schedule.Assign(w, []schedule.Cluster{ready("c1"), ready("c2")}, nil, 0).Goal {
			counts[name]++
		}
	}
	require.Greater(t, counts["c1"], int64(25))
	require.Greater(t, counts["c2"], int64(25))
}

// Replicas move a few at a time, and none is missing meanwhile.
func TestMovesAreSurgedAndLimited(t *testing.T) {
	w, clusters := divided(20), []schedule.Cluster{ready("c1"), ready("c2")}
	w.Rebalance = true
	now := shares(map[string]int64{"c1": 20})
	next := schedule.Assign(w, clusters, now, 3).Next
	require.Equal(t, map[string]int64{"c1": 20, "c2": 3}, replicas(next))

	// As long as the new ones are not available, nothing else happens.
	require.Equal(t, next, schedule.Assign(w, clusters, next, 3).Next)
	next["c2"] = schedule.Share{Replicas: 3, Available: 2}
	next = schedule.Assign(w, clusters, next, 3).Next
	require.Equal(t, map[string]int64{"c1": 18, "c2": 3}, replicas(next))

	require.Equal(t, map[string]int64{"c1": 20, "c2": 2}, replicas(schedule.Assign(w, clusters, now, 0).Next), "a tenth by default")
}

// A cluster that has just shrunk still reports the pods that end: they do not count as replacements of others.
func TestAvailableReplicasAreNoMoreThanThoseThatAreWanted(t *testing.T) {
	clusters := []schedule.Cluster{with(ready("c1"), func(c *schedule.Cluster) { c.Draining = true }), ready("c2")}
	now := map[string]schedule.Share{"c1": {Replicas: 8, Available: 9}, "c2": {Replicas: 2, Available: 1}}
	require.Equal(t, map[string]int64{"c1": 8, "c2": 2}, replicas(schedule.Assign(divided(9), clusters, now, 1).Next))
}

func TestLostReplicasAreReplacedAtOnce(t *testing.T) {
	lost := with(ready("c2"), func(c *schedule.Cluster) { c.Lost, c.Ready, c.Settled = true, false, false })
	now := shares(map[string]int64{"c1": 7, "c2": 7, "c3": 6})
	d := schedule.Assign(divided(20), []schedule.Cluster{ready("c1"), lost, ready("c3")}, now, 1)
	require.Equal(t, map[string]int64{"c1": 10, "c2": 7, "c3": 10}, replicas(d.Next), "its own share stays")
	require.True(t, d.Next["c2"].Lost)
	require.True(t, d.Done(d.Next))

	// It is back. What it had is too much, and goes when it is certain that others run it.
	back := with(ready("c2"), func(c *schedule.Cluster) { c.Settled = false })
	now = map[string]schedule.Share{"c1": {Replicas: 10, Available: 7}, "c2": {Replicas: 7, Available: 7}, "c3": {Replicas: 10, Available: 6}}
	d = schedule.Assign(divided(20), []schedule.Cluster{ready("c1"), back, ready("c3")}, now, 1)
	require.Equal(t, map[string]int64{"c1": 7, "c2": 7, "c3": 7}, replicas(d.Next), "those that do not run yet are not needed")
	now = shares(map[string]int64{"c1": 10, "c2": 7, "c3": 10})
	d = schedule.Assign(divided(20), []schedule.Cluster{ready("c1"), back, ready("c3")}, now, 1)
	require.Equal(t, map[string]int64{"c1": 10, "c2": 7, "c3": 10}, replicas(d.Next), "its status is old")
	d = schedule.Assign(divided(20), []schedule.Cluster{ready("c1"), ready("c2"), ready("c3")}, now, 1)
	require.Equal(t, map[string]int64{"c1": 7, "c2": 6, "c3": 7}, replicas(d.Next))
}

// The cluster with replicas that cannot run has the largest weight, and the other one has room for what is left.
func TestWhatNoLongerFitsElsewhereIsDivided(t *testing.T) {
	refused := with(ready("c2"), func(c *schedule.Cluster) { c.Ready, c.Settled, c.Problem = false, false, "OtherSetup" })
	clusters := []schedule.Cluster{ready("c1"), refused}
	now := map[string]schedule.Share{"c1": {Replicas: 4, Available: 4}, "c2": {Replicas: 5, Stuck: 5}}
	for _, room := range []string{"1", "3", "9"} {
		clusters[0].Free = free("100", room)
		d := schedule.Assign(divided(5), clusters, now, 1)
		require.Equal(t, map[string]int64{"c1": 5}, d.Goal, "with room for %s", room)
		require.Zero(t, d.Unplaced)
		require.Equal(t, map[string]int64{"c1": 5, "c2": 5}, replicas(d.Next))
	}
}

// What a cluster that is refused has is replaced one after the other, though nothing shrinks there before a user has
// looked.
func TestWhatIsNotHeardIsReplaced(t *testing.T) {
	refused := with(ready("c2"), func(c *schedule.Cluster) { c.Ready, c.Settled, c.Problem = false, false, "OtherSetup" })
	clusters := []schedule.Cluster{with(ready("c1"), func(c *schedule.Cluster) { c.Free = free("9", "100") }), refused}
	begun := map[string]schedule.Share{"c1": {Replicas: 1, Available: 1}, "c2": {Replicas: 3, Stuck: 3}}
	d := schedule.Assign(divided(3), clusters, begun, 1)
	require.Equal(t, map[string]int64{"c1": 2, "c2": 3}, replicas(d.Next))

	clusters[0].Free = free("1", "100")
	d = schedule.Assign(divided(3), clusters, map[string]schedule.Share{"c1": {Replicas: 2, Available: 2}, "c2": {Replicas: 3, Stuck: 3}}, 1)
	require.Equal(t, map[string]int64{"c1": 3}, d.Goal, "two are replaced already, and there is room for the third")
	d = schedule.Assign(divided(2), clusters, map[string]schedule.Share{"c1": {Replicas: 1, Available: 1}, "c2": {Replicas: 2, Stuck: 2}}, 1)
	require.Equal(t, map[string]int64{"c1": 2}, d.Goal, "what cannot run is not created there again")

	begun["c1"] = schedule.Share{Replicas: 2, Available: 1}
	require.Equal(t, map[string]int64{"c1": 2, "c2": 3}, replicas(schedule.Assign(divided(3), clusters, begun, 1).Next), "the last one does not run yet")
	begun["c1"] = schedule.Share{Replicas: 3, Available: 3}
	d = schedule.Assign(divided(3), clusters, begun, 1)
	require.Equal(t, map[string]int64{"c1": 3, "c2": 3}, replicas(d.Next), "all are replaced: nothing more starts")

	alone := divided(3)
	alone.Alone = true
	begun["c1"] = schedule.Share{Replicas: 1, Available: 1}
	require.Equal(t, map[string]int64{"c1": 1, "c2": 3}, replicas(schedule.Assign(alone, clusters, begun, 1).Next), "it would run twice")
}

// Whatever is missing, a share stays: of a lost cluster, of one without another place, and of a workload that must be
// alone.
func TestWhatRunsStays(t *testing.T) {
	lost := with(ready("c2"), func(c *schedule.Cluster) { c.Lost, c.Ready, c.Settled = true, false, false })
	drained := with(ready("c2"), func(c *schedule.Cluster) { c.Draining = true })
	alone := func(spread schedule.Spread) schedule.Workload {
		w := divided(2)
		w.Hints.Spread, w.Alone = spread, true
		return w
	}
	duplicate := divided(2)
	duplicate.Hints.Spread = schedule.Duplicate
	type numbers = map[string]int64
	for name, tc := range map[string]struct {
		workload schedule.Workload
		clusters []schedule.Cluster
		previous map[string]schedule.Share
		want     numbers
	}{
		"the only cluster is lost": {divided(2), []schedule.Cluster{lost}, shares(numbers{"c2": 2}), numbers{"c2": 2}},
		"all are lost": {divided(4), []schedule.Cluster{lost, with(lost, func(c *schedule.Cluster) { c.Name = "c1" })},
			shares(numbers{"c1": 2, "c2": 2}), numbers{"c1": 2, "c2": 2}},
		"lost and scaled to zero":           {divided(0), []schedule.Cluster{ready("c1"), lost}, shares(numbers{"c2": 2}), numbers{"c1": 0, "c2": 0}},
		"a duplicate is lost":               {duplicate, []schedule.Cluster{ready("c1"), lost}, shares(numbers{"c1": 2, "c2": 2}), numbers{"c1": 2, "c2": 2}},
		"drained without another cluster":   {divided(2), []schedule.Cluster{drained}, shares(numbers{"c2": 2}), numbers{"c2": 2}},
		"single, drained, no other":         {alone(schedule.Single), []schedule.Cluster{drained}, shares(numbers{"c2": 2}), numbers{"c2": 2}},
		"single ends before it starts":      {alone(schedule.Single), []schedule.Cluster{ready("c1"), drained}, shares(numbers{"c2": 2}), numbers{}},
		"single waits for the end":          {alone(schedule.Single), []schedule.Cluster{ready("c1"), drained}, map[string]schedule.Share{"c2": {Replicas: 2, Ending: true}}, numbers{}},
		"single has ended":                  {alone(schedule.Single), []schedule.Cluster{ready("c1"), drained}, nil, numbers{"c1": 2}},
		"single begins again where it ends": {alone(schedule.Single), []schedule.Cluster{drained, with(ready("c1"), func(c *schedule.Cluster) { c.Draining = true }), ready("c3")}, map[string]schedule.Share{"c3": {Replicas: 2, Ending: true}}, numbers{"c3": 2}},
		"single fails over":                 {alone(schedule.Single), []schedule.Cluster{ready("c1"), lost}, shares(numbers{"c2": 2}), numbers{"c1": 2, "c2": 2}},
		"its Cluster is unknown":            {alone(schedule.Single), []schedule.Cluster{ready("c1")}, shares(numbers{"c2": 2}), numbers{"c2": 2}},
		"divided and alone: one ends first": {alone(schedule.Divide), []schedule.Cluster{ready("c1"), drained}, shares(numbers{"c2": 2}), numbers{"c1": 0, "c2": 1}},
		"divided and alone: one ends": {alone(schedule.Divide), []schedule.Cluster{ready("c1"), drained},
			map[string]schedule.Share{"c2": {Replicas: 1, Existing: 2}}, numbers{"c1": 0, "c2": 1}},
		"divided and alone: one has ended": {alone(schedule.Divide), []schedule.Cluster{ready("c1"), drained},
			map[string]schedule.Share{"c2": {Replicas: 1, Existing: 1}}, numbers{"c1": 1, "c2": 1}},
		"divided and alone: waits":           {alone(schedule.Divide), []schedule.Cluster{ready("c1")}, map[string]schedule.Share{"c2": {Replicas: 2, Ending: true}}, numbers{"c1": 0}},
		"pending, and another one has room":  {divided(2), crowd(map[string]schedule.Share{"c1": {Replicas: pods}}, nil, "c1", "c2"), map[string]schedule.Share{"c1": {Replicas: 2, Available: 1, Stuck: 1}}, numbers{"c1": 2, "c2": 1}},
		"not available, but there is room":   {divided(2), crowd(nil, nil, "c1", "c2"), map[string]schedule.Share{"c1": {Replicas: 2, Available: 1, Stuck: 1}}, numbers{"c1": 2}},
		"a scaled workload of a new cluster": {divided(1), []schedule.Cluster{with(ready("c1"), func(c *schedule.Cluster) { c.Settled = false })}, shares(numbers{"c1": 9}), numbers{"c1": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := schedule.Assign(tc.workload, tc.clusters, tc.previous, 0)
			require.Equal(t, tc.want, replicas(d.Next), "%+v", d.Verdicts)
		})
	}
}

// A copy that is no longer one of the best goes when those run.
func TestALimitedDuplicateIsReplacedFirst(t *testing.T) {
	w := divided(2)
	w.Hints.Spread, w.Hints.MaxClusters = schedule.Duplicate, 1
	now := map[string]schedule.Share{"c1": {Replicas: 2}, "c2": {Replicas: 2, Available: 2}}
	clusters := []schedule.Cluster{ready("c1"), ready("c2")}
	goal := schedule.Assign(w, clusters, now, 0)
	require.Len(t, goal.Goal, 1)
	for name := range goal.Goal {
		now[name] = schedule.Share{Replicas: 2}
		require.Len(t, schedule.Assign(w, clusters, now, 0).Next, 2)
		now[name] = schedule.Share{Replicas: 2, Available: 2}
		require.Len(t, schedule.Assign(w, clusters, now, 0).Next, 1)
	}
}

// A user of a workspace must not be able to occupy the controller.
func TestAnyNumberOfReplicasIsDividedAtOnce(t *testing.T) {
	clusters := []schedule.Cluster{ready("c1"), ready("c2"), ready("c3")}
	d := schedule.Assign(divided(math.MaxInt32), clusters, nil, 0)
	require.Equal(t, d.Goal, replicas(d.Next))
	d = schedule.Assign(divided(1), clusters, d.Next, 0)
	require.Equal(t, int64(1), d.Next["c1"].Replicas+d.Next["c2"].Replicas+d.Next["c3"].Replicas)
}

func TestScalingIsNotLimited(t *testing.T) {
	clusters := []schedule.Cluster{ready("c1"), ready("c2")}
	crashing := map[string]schedule.Share{"c1": {Replicas: 10}, "c2": {Replicas: 10}}
	require.Equal(t, map[string]int64{"c1": 50, "c2": 50}, replicas(schedule.Assign(divided(100), clusters, crashing, 1).Next))
	require.Equal(t, map[string]int64{"c1": 1, "c2": 1}, replicas(schedule.Assign(divided(2), clusters, crashing, 1).Next))
}

func TestFree(t *testing.T) {
	require.Nil(t, schedule.Free(nil, nil))
	f := schedule.Free(&api.Capacity{Allocatable: free("4", "110"), Requested: free("1", "10")}, corev1.ResourceList{"cpu": resource.MustParse("500m")})
	require.Equal(t, "2500m", f.Cpu().String())
	require.Equal(t, "100", f.Pods().String())
}

func TestParseHints(t *testing.T) {
	h, err := schedule.ParseHints(
		map[string]string{api.AnnotationClusterSelector: "region in (eu)", api.AnnotationWeights: "c1=2, c2=1", api.AnnotationSpread: "Single"},
		map[string]string{api.AnnotationClusterSelector: "region=us", api.AnnotationMaxClusters: "2", api.AnnotationFailover: "5m"}, schedule.Divide)
	require.NoError(t, err)
	require.Equal(t, "region in (eu)", h.ClusterSelector.String())
	require.Equal(t, map[string]int64{"c1": 2, "c2": 1}, h.Weights)
	require.Equal(t, schedule.Single, h.Spread)
	require.Equal(t, 2, h.MaxClusters)
	require.Equal(t, api.FailoverAutomatic, h.Failover)
	require.Equal(t, 5*time.Minute, h.FailoverAfter)

	h, err = schedule.ParseHints(map[string]string{
		api.AnnotationClusterSelector: "a in", api.AnnotationWeights: "c1", api.AnnotationSpread: "Everywhere", api.AnnotationMaxClusters: "0",
		api.AnnotationAffinity: "app=db", api.AnnotationFailover: "-5m",
	}, nil, schedule.Duplicate)
	require.ErrorContains(t, err, `annotation workloads.kcp.dev/cluster-selector: "a in"`)
	require.ErrorContains(t, err, `annotation workloads.kcp.dev/weights: "c1": must be a list such as c1=2,c2=1`)
	require.ErrorContains(t, err, `annotation workloads.kcp.dev/spread: "Everywhere": must be Divide, Duplicate or Single`)
	require.ErrorContains(t, err, `annotation workloads.kcp.dev/max-clusters: "0": must be a number greater than zero`)
	require.ErrorContains(t, err, `annotation workloads.kcp.dev/failover: "-5m": must be Automatic, Never or a time such as 5m`)
	require.Equal(t, schedule.Duplicate, h.Spread)
	require.Equal(t, "app=db", h.Affinity.String())

	_, err = schedule.ParseHints(map[string]string{api.AnnotationWeights: "c1=1,c1=2"}, nil, schedule.Divide)
	require.ErrorContains(t, err, "c1 is listed twice")
}

// drawClusters returns up to five clusters in any state.
func drawClusters(t *rapid.T) []schedule.Cluster {
	var all []schedule.Cluster
	capacity := rapid.Bool().Draw(t, "capacity")
	for i := range rapid.IntRange(0, 5).Draw(t, "clusters") {
		c := ready(fmt.Sprint("c", i))
		switch rapid.IntRange(0, 9).Draw(t, c.Name) {
		case 0:
			c.Unschedulable = true
		case 1:
			c.Draining = true
		case 2:
			c.Ready, c.Settled = false, false
		case 3:
			c.Ready, c.Lost, c.Settled = false, true, false
		case 5:
			c.Settled = false
			c.Stale = rapid.Bool().Draw(t, "stale")
		case 4:
			c.API.State = api.APIIncompatible
		}
		if capacity {
			c.Free = free("4", fmt.Sprint(rapid.IntRange(0, 40).Draw(t, c.Name+" free")))
		}
		all = append(all, c)
	}
	return all
}

func drawWorkload(t *rapid.T) schedule.Workload {
	most := rapid.SampledFrom([]int64{40, 40, 40, 5000, math.MaxInt32}).Draw(t, "most")
	w := divided(rapid.Int64Range(0, most).Draw(t, "replicas"))
	if rapid.IntRange(0, 3).Draw(t, "weighted") == 0 {
		w.Hints.Weights = map[string]int64{}
		for i := range 5 {
			w.Hints.Weights[fmt.Sprint("c", i)] = int64(rapid.IntRange(0, 4).Draw(t, fmt.Sprint("weight", i)))
		}
	}
	w.Hints.MaxClusters = rapid.IntRange(0, 3).Draw(t, "max")
	return w
}

// Clusters join, leave, and change their states; pods become available or not. All replicas are placed, no cluster that
// is not a candidate gets any, running replicas are never fewer than they have to be, and in the end the goal is
// reached.
func TestAnySequenceOfStatesEndsWithTheGoal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		previous := map[string]schedule.Share{}
		for range 4 {
			w, clusters := drawWorkload(t), drawClusters(t)
			moves := int64(rapid.IntRange(0, 5).Draw(t, "moves"))
			if w.Replicas > 200 {
				moves = 0 // a tenth
			}
			for n := 0; ; n++ {
				d := schedule.Assign(w, clusters, previous, moves)
				checkDecision(t, w, d, previous, clusters)
				if d.Done(previous) {
					break
				}
				require.Less(t, n, 200, "%+v %+v", d, previous)
				previous, w.Goal = d.Next, d.Goal
				if rapid.IntRange(0, 4).Draw(t, "stop") == 0 {
					break
				}
				for _, name := range slices.Sorted(maps.Keys(previous)) {
					s := previous[name]
					if rapid.IntRange(0, 3).Draw(t, "available") > 0 || n > 20 {
						s.Available = s.Replicas
					}
					previous[name] = s
				}
			}
		}
	})
}

// A user wants fewer of very many replicas while a cluster does not answer: the decision does not remove one after the
// other.
func TestManyReplicasAreRemovedAtOnce(t *testing.T) {
	away := with(ready("c1"), func(c *schedule.Cluster) { c.Ready, c.Settled = false, false })
	now := map[string]schedule.Share{"c1": {Replicas: math.MaxInt32}, "c2": {Replicas: 3, Available: 3}}
	d := schedule.Assign(divided(2), []schedule.Cluster{away, ready("c2")}, now, 1)
	require.LessOrEqual(t, d.Next["c1"].Replicas, int64(2))

	alone := divided(math.MaxInt32)
	alone.Alone = true
	now = map[string]schedule.Share{"c1": {Replicas: math.MaxInt32}}
	d = schedule.Assign(alone, []schedule.Cluster{with(ready("c1"), func(c *schedule.Cluster) { c.Draining = true }), ready("c2")}, now, 0)
	require.Equal(t, schedule.Moves(math.MaxInt32), d.Moved)
	require.Equal(t, map[string]int64{"c1": math.MaxInt32 - d.Moved, "c2": 0}, replicas(d.Next))
}

// A cluster that is ready and does not sync the API keeps its share, whatever its last status was. Of one that is
// drained, a replica is removed for each one that others run.
func TestWhatAStaleClusterRunsIsReplacedFirst(t *testing.T) {
	stale := with(ready("c1"), func(c *schedule.Cluster) {
		c.Settled, c.Stale, c.API = false, true, api.APIStatus{State: api.APIIncompatible}
	})
	now := map[string]schedule.Share{"c1": {Replicas: 4}}
	require.Equal(t, map[string]int64{"c1": 4}, replicas(schedule.Assign(divided(4), []schedule.Cluster{stale, ready("c2")}, now, 1).Next))

	stale.Draining = true
	clusters := []schedule.Cluster{stale, ready("c2")}
	for _, step := range []struct {
		now  map[string]schedule.Share
		next map[string]int64
	}{
		{map[string]schedule.Share{"c1": {Replicas: 4}}, map[string]int64{"c1": 4, "c2": 1}},
		{map[string]schedule.Share{"c1": {Replicas: 4}, "c2": {Replicas: 1}}, map[string]int64{"c1": 4, "c2": 1}},
		{map[string]schedule.Share{"c1": {Replicas: 4}, "c2": {Replicas: 1, Available: 1}}, map[string]int64{"c1": 3, "c2": 1}},
		{map[string]schedule.Share{"c1": {Replicas: 1}, "c2": {Replicas: 4, Available: 4}}, map[string]int64{"c2": 4}},
	} {
		require.Equal(t, step.next, replicas(schedule.Assign(divided(4), clusters, step.now, 1).Next), "%v", step.now)
	}
	alone := divided(2)
	alone.Alone = true
	require.Equal(t, map[string]int64{"c1": 1, "c2": 0}, replicas(schedule.Assign(alone, clusters, map[string]schedule.Share{"c1": {Replicas: 2}}, 1).Next))
}

func checkDecision(t *rapid.T, w schedule.Workload, d schedule.Decision, previous map[string]schedule.Share, clusters []schedule.Cluster) {
	sum := d.Unplaced
	for _, n := range d.Goal {
		require.GreaterOrEqual(t, n, int64(0))
		sum += n
	}
	require.Equal(t, w.Replicas, sum, "%+v", d)
	if w.Hints.MaxClusters > 0 {
		require.LessOrEqual(t, len(d.Goal), w.Hints.MaxClusters)
	}
	for _, v := range d.Verdicts {
		require.NotEmpty(t, v.Reason)
		if !v.Chosen {
			require.NotContains(t, d.Goal, v.Cluster)
			require.LessOrEqual(t, v.Replicas, previous[v.Cluster].Replicas, "%s is not a candidate: %+v", v.Cluster, d)
		}
	}
	settled, stale := map[string]bool{}, map[string]bool{}
	for _, c := range clusters {
		settled[c.Name], stale[c.Name] = c.Settled, c.Stale
	}
	stopped, left := int64(0), int64(0)
	stoppedStale, presumed := int64(0), int64(0)
	for name, was := range previous {
		is := d.Next[name]
		if is.Lost {
			require.Equal(t, min(was.Replicas, w.Replicas), is.Replicas, "a lost share stays")
			continue
		}
		running := was.Replicas // what it says is old
		if settled[name] {
			running = min(was.Available, was.Replicas)
			left += min(running, is.Replicas)
		}
		if stale[name] {
			presumed += is.Replicas
			stoppedStale += max(0, running-is.Replicas)
			continue
		}
		stopped += max(0, running-is.Replicas)
	}
	if stoppedStale > 0 && len(previous) > 1 {
		require.GreaterOrEqual(t, left+presumed, w.Replicas, "replicas that can run were stopped: %+v %+v", d, previous)
	}
	if stopped > 0 && len(previous) > 1 {
		require.GreaterOrEqual(t, left, w.Replicas, "replicas that can run were stopped: %+v %+v", d, previous)
	}
}

// With the same clusters, the goal of the goal is the goal: nothing moves back and forth.
func TestTheGoalIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, clusters := drawWorkload(t), drawClusters(t)
		goal := schedule.Assign(w, clusters, nil, 0).Goal
		require.Equal(t, goal, schedule.Assign(w, clusters, shares(goal), 0).Goal)
	})
}

// If a cluster of many equal ones leaves or joins, no replica moves between the others.
func TestFewReplicasMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var clusters []schedule.Cluster
		for i := range rapid.IntRange(2, 6).Draw(t, "clusters") {
			clusters = append(clusters, ready(fmt.Sprint("c", i)))
		}
		w := divided(int64(rapid.IntRange(1, 40).Draw(t, "replicas")))
		all := schedule.Assign(w, clusters, nil, 0).Goal
		fewer := schedule.Assign(w, clusters[1:], shares(all), 0).Goal
		for _, c := range clusters[1:] {
			require.GreaterOrEqual(t, fewer[c.Name], all[c.Name])
		}
		again := schedule.Assign(w, clusters, shares(fewer), 0).Goal
		for _, c := range clusters[1:] {
			require.LessOrEqual(t, again[c.Name], fewer[c.Name])
		}
	})
}

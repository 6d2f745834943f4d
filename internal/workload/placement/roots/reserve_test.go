package roots

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// cpus returns a number of thousandths of a CPU.
func cpus(milli int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
}

func workload(workspace, name string) item {
	return item{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, watch.Key{Cluster: workspace, Namespace: "shop", Name: name}}
}

// What is counted as reservations change is what counting them all gives.
func TestReservationsAreCountedAsTheyChange(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all, now := reservations{}, time.Now()
	in, capacity := all.of("c1"), &api.Capacity{Allocatable: cpus(9000), Requested: cpus(1000)}
	for range 2000 {
		now = now.Add(time.Second)
		i := workload(fmt.Sprint("w", random.IntN(4)), fmt.Sprint("d", random.IntN(5)))
		shares := map[string]schedule.Share{"c1": {Replicas: int64(random.IntN(12))}}
		if random.IntN(3) == 0 {
			shares = nil
		}
		sub := &subject{item: i, now: now, workload: schedule.Workload{Requests: cpus(100 * random.Int64N(9))}}
		all.record(sub, shares, map[string]int64{"c1": random.Int64N(12)})
		if random.IntN(20) == 0 {
			capacity = &api.Capacity{Allocatable: cpus(1000 * (1 + random.Int64N(20))), Requested: cpus(random.Int64N(2000))}
		}
		is := in.free(capacity, workload("another", "d"), false, now)
		total, sums := corev1.ResourceList{}, map[string]corev1.ResourceList{}
		for i, one := range in.items {
			if sums[i.Cluster] == nil {
				sums[i.Cluster] = corev1.ResourceList{}
			}
			schedule.Add(sums[i.Cluster], one.requests, one.n)
			require.True(t, now.Before(one.until))
			require.Positive(t, one.n)
		}
		for _, sum := range sums {
			schedule.Add(total, capped(sum, capacity.Allocatable), 1)
		}
		want := schedule.Free(capacity, total)
		require.Zero(t, want.Cpu().Cmp(*is.Cpu()), "%s, and not %s", is.Cpu(), want.Cpu())
	}
}

// What a workspace reserves takes at most half of a cluster from others, and nothing after a while. For itself, all of
// it counts.
func TestReservationsOfAWorkspaceAndOthers(t *testing.T) {
	all, now := reservations{}, time.Now()
	capacity := &api.Capacity{Allocatable: cpus(10000), Requested: cpus(1000)}
	free := func(i item, has bool) int64 {
		list := all.of("c1").free(capacity, i, has, now)
		return list.Cpu().MilliValue()
	}
	greedy, others := workload("1a", "greedy"), workload("2b", "web")
	last := int64(0)
	decide := func(replicas int64) {
		sub := &subject{item: greedy, now: now, workload: schedule.Workload{Requests: cpus(1000)}}
		all.record(sub, map[string]schedule.Share{"c1": {Replicas: replicas}}, map[string]int64{"c1": last})
		last = replicas
	}
	decide(3)
	require.EqualValues(t, 6000, free(others, false))
	decide(3)
	require.EqualValues(t, 6000, free(others, false), "the same decision reserves once")
	decide(1000)
	require.EqualValues(t, 4000, free(others, false), "a cluster may refuse what it wants")
	require.EqualValues(t, 9000-1000*1000, free(greedy, true))
	require.EqualValues(t, 9000, free(greedy, false), "it does not avoid its own reservation")
	now = now.Add(reserveFor)
	require.EqualValues(t, 9000, free(others, false), "its pods are in the report, or there are none")
	decide(1000)
	require.EqualValues(t, 9000, free(others, false), "kcp refuses its leaf: each decision is the same")
	require.Empty(t, all.of("c1").sums)
}

// A workload that is made again while its last leaf still ends is decided about often. What it has reserved itself does
// not change the result.
func TestAWorkloadDoesNotAvoidItsOwnReservation(t *testing.T) {
	clusters := []*api.Cluster{}
	for n, name := range []string{"c1", "c2", "c3"} {
		c := &api.Cluster{Status: api.ClusterStatus{
			Conditions: []metav1.Condition{{Type: api.ConditionReady, Status: metav1.ConditionTrue}},
			APIs:       []api.APIStatus{{Group: "apps", Resource: "deployments", Version: "v1", State: api.APIPublished}},
			Capacity:   &api.Capacity{Allocatable: cpus(24000), Requested: cpus(1000 * (20 + 2*int64(n) - int64(n)/2))},
		}}
		c.Name = name
		clusters = append(clusters, c)
	}
	d := newDecider(&view{Options: Options{Now: time.Now}})
	sub := &subject{
		item: workload("1a", "web"), clusters: clusters, now: time.Now(),
		workload: schedule.Workload{Key: "web", Replicas: 6, Requests: cpus(1000)},
		previous: map[string]schedule.Share{"c1": {Replicas: 2, Ending: true}},
	}
	var first map[string]int64
	for range 4 {
		decision := schedule.Assign(sub.workload, d.candidates(sub), sub.previous, 0)
		d.reserved.record(sub, decision.Next, first)
		if first == nil {
			first = decision.Goal
		}
		require.Equal(t, first, decision.Goal)
	}
}

// kcp does not validate quantities: it stores ones that take minutes and all memory to add.
func TestQuantitiesThatCannotBeCounted(t *testing.T) {
	container := func(cpu any) any {
		return map[string]any{"name": "c", "resources": map[string]any{"requests": map[string]any{"cpu": cpu, "memory": "1Gi"}}}
	}
	root := &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "apiVersion": "apps/v1", "spec": map[string]any{"template": map[string]any{
		"spec": map[string]any{
			"containers": []any{container("1e10000"), container("1e1"), container(int64(2)), container("1e-10000"), container("1" + strings.Repeat("0", 64))},
			"volumes":    []any{map[string]any{"name": "v", "emptyDir": map[string]any{"sizeLimit": "1e-10000"}}},
		}}}}}
	before := root.DeepCopy()
	requests := requestsOf(root)
	require.Equal(t, "12", requests.Cpu().String())
	require.Equal(t, "5Gi", requests.Memory().String())
	require.Equal(t, before, root)
}

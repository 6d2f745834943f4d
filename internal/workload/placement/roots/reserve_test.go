package roots

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// What is counted as reservations change is what counting them all gives.
func TestReservationsAreCountedAsTheyChange(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	cpus := func(n int) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(n), resource.DecimalSI)}
	}
	all, now := reservations{}, time.Now()
	in, capacity := all.of("c1"), &api.Capacity{Allocatable: cpus(9000), Requested: cpus(1000)}
	for range 2000 {
		i := item{}
		i.Cluster, i.Name = fmt.Sprint("w", random.IntN(4)), fmt.Sprint("d", random.IntN(5))
		var next *reservation
		if random.IntN(3) > 0 {
			next = &reservation{requests: cpus(100 * random.IntN(9)), n: int64(random.IntN(12)), until: now.Add(time.Hour)}
		}
		in.set(i, next)
		if random.IntN(20) == 0 {
			capacity = &api.Capacity{Allocatable: cpus(1000 * (1 + random.IntN(20))), Requested: cpus(random.IntN(2000))}
		}
		total := corev1.ResourceList{}
		for _, sum := range in.sums {
			schedule.Add(total, capped(sum, capacity.Allocatable))
		}
		want, is := schedule.Free(capacity, total), in.free(capacity, "another", now)
		require.Zero(t, want.Cpu().Cmp(*is.Cpu()), "%s, and not %s", is.Cpu(), want.Cpu())
	}
}

// A workload that is made again while its last leaf still ends is decided about often. What it has reserved itself does
// not change the result.
func TestAWorkloadDoesNotAvoidItsOwnReservation(t *testing.T) {
	cpus := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	clusters := []*api.Cluster{}
	for _, name := range []string{"c1", "c2", "c3"} {
		c := &api.Cluster{Status: api.ClusterStatus{
			Conditions: []metav1.Condition{{Type: api.ConditionReady, Status: metav1.ConditionTrue}},
			APIs:       []api.APIStatus{{Group: "apps", Resource: "deployments", Version: "v1", State: api.APIPublished}},
			Capacity:   &api.Capacity{Allocatable: cpus(24), Requested: cpus(20 + 2*int64(len(clusters)) - int64(len(clusters))/2)},
		}}
		c.Name = name
		clusters = append(clusters, c)
	}
	s, now := New(Options{Now: time.Now}), time.Now()
	i := item{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, watch.Key{Cluster: "1a", Namespace: "shop", Name: "web"}}
	w := schedule.Workload{Key: "web", Replicas: 6, Requests: cpus(1)}
	previous := map[string]schedule.Share{"c1": {Replicas: 2, Ending: true}}
	var first map[string]int64
	for range 4 {
		d := schedule.Assign(w, s.candidates(i, w, clusters, previous, now), previous, 0)
		s.reserved.record(i, w.Requests, d, previous, nil, now)
		if first == nil {
			first = d.Goal
		}
		require.Equal(t, first, d.Goal)
	}
}

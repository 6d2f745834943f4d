package roots

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
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

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/kcpctl/kcpctl/internal/workload/sync/queue"
)

// tenant returns the tenant of an item such as a/1.
func tenant(item string) string {
	name, _, _ := strings.Cut(item, "/")
	return name
}

func newQueue(workers int) workqueue.TypedRateLimitingInterface[string] {
	return queue.New(workers, tenant)
}

func add(q workqueue.TypedRateLimitingInterface[string], items ...string) {
	for _, item := range items {
		q.Add(item)
	}
}

// take returns the next items, as one worker would that handles one after the other.
func take(q workqueue.TypedRateLimitingInterface[string], n int) (out []string) {
	for range n {
		item, _ := q.Get()
		out = append(out, item)
		q.Done(item)
	}
	return out
}

func TestTenantsAreServedInTurn(t *testing.T) {
	q := newQueue(2)
	defer q.ShutDown()
	add(q, "a/1", "a/2", "a/3", "a/4", "b/1", "c/1", "c/2", "a/1")
	require.Equal(t, 7, q.Len(), "an item that waits is not added again")
	require.Equal(t, []string{"a/1", "b/1", "c/1", "a/2", "c/2", "a/3", "a/4"}, take(q, 7))
}

func TestAFloodDelaysOthersByOneItem(t *testing.T) {
	q := newQueue(8)
	defer q.ShutDown()
	for i := range 10000 {
		q.Add("flood/" + strconv.Itoa(i))
	}
	take(q, 10)
	q.Add("other/1")
	require.Contains(t, take(q, 2), "other/1")
}

func TestATenantHoldsHalfOfTheWorkers(t *testing.T) {
	for workers, most := range map[int]int{1: 1, 2: 1, 3: 1, 8: 4} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(workers)
			defer q.ShutDown()
			for i := range most + 1 {
				q.Add("slow/" + strconv.Itoa(i))
			}
			for i := range most {
				item, _ := q.Get()
				require.Equal(t, "slow/"+strconv.Itoa(i), item)
			}
			q.Add("other/1")
			require.Equal(t, []string{"other/1"}, take(q, 1), "it does not wait for slow items")
			got := make(chan string, 1)
			go func() {
				item, _ := q.Get()
				got <- item
			}()
			synctest.Wait()
			require.Empty(t, got, "another worker for slow items")
			q.Add("other/2")
			require.Equal(t, "other/2", <-got)
			q.Done("slow/0")
			item, _ := q.Get()
			require.Equal(t, "slow/"+strconv.Itoa(most), item, "one that is done lets the next one in")
		})
	}
}

// A tenant without others waits for nothing but workers: half of them always work.
func TestATenantAloneIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, items = 8, 10000
		q := newQueue(workers)
		for i := range items {
			q.Add("only/" + strconv.Itoa(i))
		}
		q.ShutDown()
		began := time.Now()
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for item, stop := q.Get(); !stop; item, stop = q.Get() {
					time.Sleep(time.Millisecond)
					q.Done(item)
				}
			})
		}
		all.Wait()
		require.Zero(t, q.Len())
		require.Equal(t, items/(workers/2)*time.Millisecond, time.Since(began))
	})
}

func TestAnItemThatChangesIsHandledAgain(t *testing.T) {
	q := newQueue(8)
	defer q.ShutDown()
	q.Add("a/1")
	item, _ := q.Get()
	add(q, "a/1", "a/1")
	require.Zero(t, q.Len(), "two workers do not have the same item")
	q.Done(item)
	require.Equal(t, 1, q.Len())
	require.Equal(t, []string{"a/1"}, take(q, 1))
	require.Zero(t, q.Len())
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(2)
		defer q.ShutDown()
		began := time.Now()
		q.AddAfter("a/1", 3*time.Second)
		take(q, 1)
		require.Equal(t, 3*time.Second, time.Since(began))
		for _, want := range []time.Duration{queue.FirstRetry, 2 * queue.FirstRetry, 4 * queue.FirstRetry} {
			began = time.Now()
			q.AddRateLimited("a/1")
			take(q, 1)
			require.Equal(t, want, time.Since(began))
		}
		require.Equal(t, 3, q.NumRequeues("a/1"))
		q.Forget("a/1")
		require.Zero(t, q.NumRequeues("a/1"))
	})
}

func TestShutDown(t *testing.T) {
	q := newQueue(2)
	add(q, "a/1", "a/2")
	first, _ := q.Get()
	q.ShutDown()
	q.Add("b/1")
	require.True(t, q.ShuttingDown())
	_, stop := q.Get()
	require.True(t, stop, "the other worker ends")
	q.Done(first)
	require.Equal(t, []string{"a/2"}, take(q, 1), "what waits is served")
	_, stop = q.Get()
	require.True(t, stop)
}

// Random adds, gets and ends: no item is lost, none is with two workers, items of a tenant keep their order, and no
// tenant that can be served waits for more than one item of each other one.
func TestRandom(t *testing.T) {
	const workers, tenants = 6, 5
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := newQueue(workers)
		var held []string
		waiting, again := map[string][]string{}, map[string]bool{}
		passed := map[string]int{} // items of others since a tenant could be served
		holds := func(name string) (n int) {
			for _, item := range held {
				if tenant(item) == name {
					n++
				}
			}
			return n
		}
		can := func(name string) bool { return len(waiting[name]) > 0 && holds(name) < workers/2 }
		for range 400 {
			any := false
			for name := range waiting {
				any = any || can(name)
			}
			switch n := r.IntN(10); {
			case n < 4:
				item := string(rune('a'+r.IntN(tenants))) + "/" + strconv.Itoa(r.IntN(8))
				name := tenant(item)
				q.Add(item)
				switch {
				case contains(held, item):
					again[item] = true
				case !contains(waiting[name], item):
					waiting[name] = append(waiting[name], item)
				}
			case n < 7 && any && len(held) < workers:
				item, _ := q.Get()
				name := tenant(item)
				require.NotContains(t, held, item)
				require.True(t, can(name), "seed %d: %s holds too many", seed, name)
				require.Equal(t, waiting[name][0], item, "seed %d", seed)
				for other := range waiting {
					if other != name && can(other) {
						passed[other]++
						require.Less(t, passed[other], tenants, "seed %d: %s waits", seed, other)
					}
				}
				waiting[name], passed[name] = waiting[name][1:], 0
				held = append(held, item)
			case len(held) > 0:
				i := r.IntN(len(held))
				item := held[i]
				held = append(held[:i:i], held[i+1:]...)
				if again[item] {
					waiting[tenant(item)] = append(waiting[tenant(item)], item)
				}
				delete(again, item)
				q.Done(item)
			}
			n := 0
			for name := range waiting {
				n += len(waiting[name])
				if !can(name) {
					passed[name] = 0
				}
			}
			require.Equal(t, n, q.Len(), "seed %d", seed)
		}
		q.ShutDown()
	}
}

func contains(all []string, item string) bool {
	for _, x := range all {
		if x == item {
			return true
		}
	}
	return false
}

// A conflict is expected: the watch brings what another client has written.
func TestErrorsAreReportedAndRetried(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed"))
	for name, tc := range map[string]struct {
		err      error
		reported int
	}{
		"another error": {errors.New("no etcd"), 6}, "a conflict": {fmt.Errorf("apply: %w", conflict), 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, calls, reported := newQueue(2), 0, 0
			q.Add("a/1")
			queue.Serve(t.Context(), q, func(ctx context.Context, _ string) (time.Duration, error) {
				_, limited := ctx.Deadline()
				require.True(t, limited)
				switch calls++; {
				case calls <= 6:
					return 0, tc.err
				case calls == 7:
					require.Equal(t, 6, q.NumRequeues("a/1"))
					return time.Second, nil
				}
				q.ShutDown()
				return 0, nil
			}, func(string, error, int) { reported++ })
			require.Equal(t, 8, calls)
			require.Equal(t, tc.reported, reported, name)
			require.Zero(t, q.NumRequeues("a/1"))
		})
	}
}

// Package queue is a work queue that is fair to tenants: a tenant with many items does not delay the items of others.
package queue

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

const (
	// FirstRetry and LastRetry are the delays before an item is tried again.
	FirstRetry = 100 * time.Millisecond
	LastRetry  = 30 * time.Second
	// QuietRetries is how many retries are not reported after an error that is expected.
	QuietRetries = 4
	// timeout is how long the requests for an item may take, so that no worker waits for good. An API server gives up
	// after a minute.
	timeout = 65 * time.Second
)

// New returns a queue of client-go that serves tenants in turn, and the items of a tenant in their order. Without others,
// a tenant waits for nothing but workers. It holds at most half of them at a time, but at least one, so that others do
// not wait for items that take long. A worker that calls Done must call Get next: if an item of the tenant had to wait,
// it is for this worker.
func New[K comparable](workers int, tenant func(K) string) workqueue.TypedRateLimitingInterface[K] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](FirstRetry, LastRetry)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[K]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
			Queue: Plain(workers, tenant)}),
	})
}

// Run starts workers that serve a queue, each as Serve does. They end with the context.
func Run[K comparable](ctx context.Context, g *errgroup.Group, workers int, q workqueue.TypedRateLimitingInterface[K],
	handle func(context.Context, K) (time.Duration, error), failed func(K, error, int)) {
	g.Go(func() error { <-ctx.Done(); q.ShutDown(); return context.Cause(ctx) })
	for range workers {
		g.Go(func() error { Serve(ctx, q, handle, failed); return nil })
	}
}

// Serve handles the items of a queue until it is shut down, each within a time limit. Handle returns when to look at an
// item again, or zero. After an error, it is tried again. Failed reports the error: not a conflict at first, because
// the watch brings what another client has written.
func Serve[K comparable](ctx context.Context, q workqueue.TypedRateLimitingInterface[K],
	handle func(context.Context, K) (time.Duration, error), failed func(item K, err error, retries int)) {
	for {
		item, ended := q.Get()
		if ended {
			return
		}
		limited, cancel := context.WithTimeout(ctx, timeout)
		again, err := handle(limited, item)
		cancel()
		if err == nil || ctx.Err() != nil {
			q.Forget(item)
			if again > 0 {
				q.AddAfter(item, again)
			}
		} else {
			if retries := q.NumRequeues(item); !apierrors.IsConflict(err) || retries >= QuietRetries {
				failed(item, err, retries)
			}
			q.AddRateLimited(item)
		}
		q.Done(item)
	}
}

// Plain returns such a queue without delays.
func Plain[K comparable](workers int, tenant func(K) string) workqueue.TypedInterface[K] {
	t := &turns[K]{tenant: tenant, most: max(1, workers/2), lines: map[string]*line[K]{}}
	return fair[K]{workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Queue: t}), t}
}

// fair tells the turns which items are done, which client-go does not.
type fair[K comparable] struct {
	workqueue.TypedInterface[K]
	turns *turns[K]
}

// Done implements workqueue.TypedInterface.
func (f fair[K]) Done(item K) {
	f.turns.done(item)
	f.TypedInterface.Done(item)
}

// Len implements workqueue.TypedInterface: it also counts items that wait for others of their tenant.
func (f fair[K]) Len() int {
	f.turns.mu.Lock()
	defer f.turns.mu.Unlock()
	return f.turns.waiting
}

// line has the waiting items of a tenant, and the number of items that workers hold.
type line[K comparable] struct {
	waiting []K
	held    int
}

// turns implements workqueue.Queue: the order in which client-go serves items.
type turns[K comparable] struct {
	tenant func(K) string
	most   int // of the workers for a tenant

	mu sync.Mutex
	// lines has the tenants with items. The tenants in next can be served, in turn.
	lines   map[string]*line[K]
	next    []string
	waiting int
}

// Touch implements workqueue.Queue: an item that waits keeps its place.
func (t *turns[K]) Touch(K) {}

// Push implements workqueue.Queue.
func (t *turns[K]) Push(item K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := t.tenant(item)
	l := t.lines[name]
	if l == nil {
		l = &line[K]{}
		t.lines[name] = l
	}
	l.waiting = append(l.waiting, item)
	t.waiting++
	if len(l.waiting) == 1 && l.held < t.most {
		t.next = append(t.next, name)
	}
}

// Len implements workqueue.Queue: it is zero if no tenant can be served.
func (t *turns[K]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.next)
}

// Pop implements workqueue.Queue.
func (t *turns[K]) Pop() K {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := t.next[0]
	t.next = t.next[1:]
	l := t.lines[name]
	item := l.waiting[0]
	l.waiting[0] = *new(K) // the array stays for a while
	l.waiting = l.waiting[1:]
	l.held++
	t.waiting--
	if len(l.waiting) > 0 && l.held < t.most {
		t.next = append(t.next, name)
	}
	return item
}

// done lets the next item of a tenant in that has held too many workers, and forgets a tenant without items.
func (t *turns[K]) done(item K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := t.tenant(item)
	l := t.lines[name]
	if l.held == t.most && len(l.waiting) > 0 {
		t.next = append(t.next, name)
	}
	if l.held--; l.held == 0 && len(l.waiting) == 0 {
		delete(t.lines, name)
	}
}

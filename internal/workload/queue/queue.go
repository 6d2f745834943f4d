// Package queue is a work queue that is fair to tenants: a tenant with many items does not delay the items of others.
package queue

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
)

// New returns a queue for a number of workers. Items are those of a tenant each: they are served in their order, and the tenants in turn. A
// tenant holds at most half of the workers at a time, but at least one, so that others do not wait for it, even if its items take long.
// The delays of AddAfter and AddRateLimited are those of client-go, and so is everything else.
func New[K comparable](workers int, tenant func(K) string, limiter workqueue.TypedRateLimiter[K]) workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[K]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Queue: newFair(workers, tenant)}),
	})
}

// line are the items of a tenant.
type line[K comparable] struct {
	waiting []K
	// held are the items that workers have.
	held int
	// listed reports whether the line is in fair.turns.
	listed bool
}

// fair implements workqueue.TypedInterface. The hook for the order of client-go's own queue (workqueue.Queue) is not enough: it is not
// called when an item is done, so a tenant that holds too many workers cannot wait there until one of them is free.
type fair[K comparable] struct {
	tenant func(K) string
	// most is how many workers a tenant holds at most.
	most int

	mu sync.Mutex
	// wake wakes workers, and idle who waits until all items are done.
	wake, idle *sync.Cond
	// dirty are the items that have to be handled, and held those that workers have. An item that is both is handled again.
	dirty, held sets.Set[K]
	lines       map[string]*line[K]
	// turns are the tenants that can be served, in their order: they have items, and do not hold too many workers.
	turns []string
	// waiting is the number of all items that no worker has.
	waiting      int
	shuttingDown bool
}

func newFair[K comparable](workers int, tenant func(K) string) *fair[K] {
	f := &fair[K]{tenant: tenant, most: max(1, workers/2), dirty: sets.Set[K]{}, held: sets.Set[K]{}, lines: map[string]*line[K]{}}
	f.wake = sync.NewCond(&f.mu)
	f.idle = sync.NewCond(&f.mu)
	return f
}

// Add implements workqueue.TypedInterface.
func (f *fair[K]) Add(item K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shuttingDown || f.dirty.Has(item) {
		return
	}
	f.dirty.Insert(item)
	if !f.held.Has(item) {
		f.push(item)
	}
}

// push adds an item to the line of its tenant. The queue is locked.
func (f *fair[K]) push(item K) {
	name := f.tenant(item)
	l := f.lines[name]
	if l == nil {
		l = &line[K]{}
		f.lines[name] = l
	}
	l.waiting = append(l.waiting, item)
	f.waiting++
	f.list(name, l)
}

// list gives a tenant a turn, if it can be served. The queue is locked.
func (f *fair[K]) list(name string, l *line[K]) {
	if l.listed || len(l.waiting) == 0 || l.held >= f.most {
		return
	}
	l.listed = true
	f.turns = append(f.turns, name)
	f.wake.Signal()
}

// Get implements workqueue.TypedInterface.
func (f *fair[K]) Get() (item K, shutdown bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.turns) == 0 {
		if f.shuttingDown && f.waiting == 0 {
			return item, true
		}
		f.wake.Wait()
	}
	name := f.turns[0]
	f.turns = f.turns[1:]
	l := f.lines[name]
	item = l.waiting[0]
	l.waiting[0] = *new(K) // the array stays for a while
	l.waiting = l.waiting[1:]
	l.held++
	l.listed = false
	f.waiting--
	f.held.Insert(item)
	f.dirty.Delete(item)
	f.list(name, l)
	if f.shuttingDown && f.waiting == 0 {
		f.wake.Broadcast()
	}
	return item, false
}

// Done implements workqueue.TypedInterface.
func (f *fair[K]) Done(item K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.held.Has(item) {
		return
	}
	name := f.tenant(item)
	l := f.lines[name]
	l.held--
	f.held.Delete(item)
	if f.dirty.Has(item) {
		f.push(item)
	}
	f.list(name, l)
	if l.held == 0 && len(l.waiting) == 0 {
		delete(f.lines, name)
	}
	if f.waiting+len(f.held) == 0 {
		f.idle.Broadcast()
	}
}

// Len implements workqueue.TypedInterface.
func (f *fair[K]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

// ShutDown implements workqueue.TypedInterface: items that wait are still served.
func (f *fair[K]) ShutDown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shuttingDown = true
	f.wake.Broadcast()
}

// ShutDownWithDrain implements workqueue.TypedInterface: it waits until all items are done.
func (f *fair[K]) ShutDownWithDrain() {
	f.ShutDown()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.waiting+len(f.held) > 0 {
		f.idle.Wait()
	}
}

// ShuttingDown implements workqueue.TypedInterface.
func (f *fair[K]) ShuttingDown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shuttingDown
}

// Package queue is a work queue that is fair to tenants: a tenant with many items does not delay the items of others.
package queue

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
)

// Options are how a queue serves tenants.
type Options[K comparable] struct {
	// Workers is how many workers there are. A tenant holds at most half of them at a time, but at least one, so that
	// others do not wait for it, even if its items take long.
	Workers int
	// Tenant returns the tenant of an item.
	Tenant func(K) string
	// PerSecond is how many items of a tenant are served in a second for long, and Burst how many more at once. A
	// worker that serves an item uses processors, and its writes come back as events, which all tenants share: turns
	// alone do not bound that. Zero means no limit.
	PerSecond, Burst int
	// Limiter has the delays of AddRateLimited.
	Limiter workqueue.TypedRateLimiter[K]
}

// New returns a queue. The items of a tenant are served in their order, and the tenants in turn. Everything else is as
// in client-go, such as the delays of AddAfter and AddRateLimited.
func New[K comparable](o Options[K]) workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(o.Limiter, workqueue.TypedRateLimitingQueueConfig[K]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Queue: newFair(o)}),
	})
}

// line are the items of a tenant.
type line[K comparable] struct {
	waiting []K
	// held are the items that workers have.
	held int
	// listed reports whether the line is in fair.turns, and delayed whether it gets a turn when the tenant may be
	// served again.
	listed, delayed bool
	// served is how many items of the last ones count for the limit. It shrinks with time: since is when it was right.
	served float64
	since  time.Time
}

// shrink forgets what was served long ago.
func (l *line[K]) shrink(perSecond int, now time.Time) {
	l.served = max(0, l.served-float64(perSecond)*now.Sub(l.since).Seconds())
	l.since = now
}

// fair implements workqueue.TypedInterface. The hook for the order of client-go's own queue (workqueue.Queue) is not
// enough: it is not called when an item is done, so a tenant that holds too many workers cannot wait there until one of
// them is free.
type fair[K comparable] struct {
	Options[K]
	// most is how many workers a tenant holds at most.
	most int

	mu sync.Mutex
	// wake wakes workers, and idle who waits until all items are done.
	wake, idle *sync.Cond
	// dirty are the items that have to be handled, and held those that workers have. An item that is both is handled
	// again.
	dirty, held sets.Set[K]
	lines       map[string]*line[K]
	// turns are the tenants that can be served, in their order: they have items, and do not hold too many workers.
	turns []string
	// waiting is the number of all items that no worker has.
	waiting      int
	shuttingDown bool
	// sweepAt is the number of lines at which those are looked for that are not needed.
	sweepAt int
}

// firstSweep is the least number of lines at which those are looked for that are not needed.
const firstSweep = 128

func newFair[K comparable](o Options[K]) *fair[K] {
	f := &fair[K]{Options: o, most: max(1, o.Workers/2), dirty: sets.Set[K]{}, held: sets.Set[K]{},
		lines: map[string]*line[K]{}}
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
	name := f.Tenant(item)
	l := f.lines[name]
	if l == nil {
		l = &line[K]{}
		f.lines[name] = l
	}
	l.waiting = append(l.waiting, item)
	f.waiting++
	f.list(name, l)
}

// list gives a tenant a turn, if it can be served, or when it may be served again. The queue is locked.
func (f *fair[K]) list(name string, l *line[K]) {
	if l.listed || len(l.waiting) == 0 || l.held >= f.most {
		return
	}
	if wait := f.delay(l); wait > 0 {
		if !l.delayed {
			l.delayed = true
			time.AfterFunc(wait, func() { f.resume(name, l) })
		}
		return
	}
	l.listed = true
	f.turns = append(f.turns, name)
	f.wake.Signal()
}

// delay returns the time until the next item of a tenant may be served, or zero. The queue is locked.
func (f *fair[K]) delay(l *line[K]) time.Duration {
	if f.PerSecond == 0 || f.shuttingDown {
		return 0
	}
	l.shrink(f.PerSecond, time.Now())
	return time.Duration(max(0, l.served-float64(f.Burst)) / float64(f.PerSecond) * float64(time.Second))
}

// resume gives a tenant a turn that has waited for it.
func (f *fair[K]) resume(name string, l *line[K]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.delayed = false
	f.list(name, l)
}

// leave forgets tenants without items, unless what was served still counts. The queue is locked.
func (f *fair[K]) leave() {
	if len(f.lines) < f.sweepAt {
		return
	}
	now := time.Now()
	maps.DeleteFunc(f.lines, func(_ string, l *line[K]) bool {
		if l.held > 0 || len(l.waiting) > 0 || l.delayed {
			return false
		}
		l.shrink(f.PerSecond, now)
		return l.served == 0
	})
	f.sweepAt = max(firstSweep, 2*len(f.lines))
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
	if f.PerSecond > 0 {
		l.served++
	}
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
	name := f.Tenant(item)
	l := f.lines[name]
	l.held--
	f.held.Delete(item)
	if f.dirty.Has(item) {
		f.push(item)
	}
	f.list(name, l)
	f.leave()
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
	for name, l := range f.lines {
		f.list(name, l) // no item waits
	}
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

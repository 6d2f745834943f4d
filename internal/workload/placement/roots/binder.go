package roots

import (
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// binding is the binding to an APIExport in a logical cluster.
type binding struct{ workspace, export string }

// binder has the state of the bindings. It has a separate queue, so that workloads do not wait for bindings.
type binder struct {
	// queue has logical clusters.
	queue workqueue.TypedRateLimitingInterface[string]
	// backoff has the delays of bindings whose claims kcp has not applied.
	backoff workqueue.TypedRateLimiter[binding]
	writes  flowcontrol.RateLimiter
	// usable reports whether a workspace may use a cluster. Nil: all may.
	usable func(workspace, cluster string) bool

	mu sync.Mutex
	// needed are the clusters of decisions, by logical cluster.
	needed map[string]map[string]bool
	// applied has the bindings that there are, and whether kcp has applied their claims.
	applied map[string]map[string]bool
	// next is the time of the next request.
	next map[binding]time.Time
	// gone are APIExports that do not exist.
	gone map[string]bool
}

func newBinder() *binder {
	return &binder{
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBind, lastBind)),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[binding](firstBind, lastBind),
		writes:  flowcontrol.NewTokenBucketRateLimiter(bindsPerSecond, bindBurst),
		needed:  map[string]map[string]bool{}, applied: map[string]map[string]bool{}, next: map[binding]time.Time{},
		gone: map[string]bool{},
	}
}

// record records which bindings a workspace has.
func (b *binder) record(workspace string, have map[string]watch.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	applied := map[string]bool{}
	for name, o := range have {
		if cluster, ok := strings.CutPrefix(name, api.ExportCluster("")); ok {
			applied[cluster] = api.ClaimsApplied(o.Unstructured)
		}
	}
	b.applied[workspace] = applied
	for cluster := range b.needed[workspace] {
		if applied[cluster] {
			delete(b.needed[workspace], cluster) // the binding itself is known from now on
		}
	}
	if len(b.needed[workspace]) == 0 {
		delete(b.needed, workspace)
	}
}

// forget forgets a workspace that is gone.
func (b *binder) forget(workspace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.applied, workspace)
	delete(b.needed, workspace)
	for at := range b.next {
		if at.workspace == workspace {
			delete(b.next, at)
			b.backoff.Forget(at)
		}
	}
}

// settled ends the delays of a binding.
func (b *binder) settled(at binding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.next[at]; ok {
		delete(b.next, at)
		b.backoff.Forget(at)
	}
}

// due returns the time until kcp may be asked again about a binding, or zero, and then begins the next delay. What was
// written a moment ago is not asked about.
func (b *binder) due(at binding, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	next, waits := b.next[at]
	if waits && now.Before(next) {
		return next.Sub(now)
	}
	b.next[at] = now.Add(b.backoff.When(at))
	if !waits {
		return firstBind
	}
	return 0
}

// left returns how long nothing is to be written to a binding, or zero.
func (b *binder) left(at binding, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.next[at].Sub(now))
}

// rebound takes note of the APIExports that there are.
func (b *binder) rebound(exports map[string][]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.gone, func(name string, _ bool) bool { _, exists := exports[name]; return exists })
}

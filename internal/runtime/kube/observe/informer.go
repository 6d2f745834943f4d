package observe

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/retry"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// byComponent is the index of objects by the component that they belong to.
const byComponent = "component"

// informers are the informers for a cluster, by resource.
type informers struct {
	mu  sync.Mutex
	all map[string]*informer
}

// informer keeps the objects of a resource up to date by a watch.
type informer struct {
	cache.Indexer
	synced <-chan struct{}
	// late is the error of a watch that does not start.
	late error

	mu sync.Mutex
	// failure is why the resource cannot be watched now, if that does not pass by itself. changed is closed, and
	// replaced, when it changes.
	failure error
	changed chan struct{}
}

// set sets why the resource cannot be watched.
func (i *informer) set(failure error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failure = failure
	close(i.changed)
	i.changed = make(chan struct{})
}

// watch returns the informer for a resource, and starts it with the first call. It does not wait.
func (i *informers) watch(
	ctx context.Context, cl *cluster.Client, r schema.GroupVersionResource, o metav1.ListOptions,
	convert cache.TransformFunc,
) *informer {
	i.mu.Lock()
	defer i.mu.Unlock()
	if known := i.all[r.Resource]; known != nil {
		return known
	}
	client := cl.Resource(r)
	out := &informer{late: cl.Explain(retry.ErrNoAnswer, "watch %s", r.Resource), changed: make(chan struct{})}
	shared := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, lo metav1.ListOptions) (runtime.Object, error) {
			lo.LabelSelector = o.LabelSelector
			lo.FieldSelector = o.FieldSelector
			return client.List(ctx, lo)
		},
		WatchFuncWithContext: func(ctx context.Context, lo metav1.ListOptions) (watch.Interface, error) {
			lo.LabelSelector = o.LabelSelector
			lo.FieldSelector = o.FieldSelector
			w, err := client.Watch(ctx, lo)
			if err == nil {
				out.set(nil)
			}
			return w, err
		},
	}, &unstructured.Unstructured{}, 0, cache.Indexers{byComponent: componentIndex})
	out.Indexer = shared.GetIndexer()
	out.synced = shared.HasSyncedChecker().Done()
	// Neither fails before the informer is started.
	_ = shared.SetTransform(convert)
	_ = shared.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || retry.IsTLS(err) {
			out.set(cl.Explain(err, "watch %s", r.Resource))
		}
	})
	if i.all == nil {
		i.all = map[string]*informer{}
	}
	i.all[r.Resource] = out
	go shared.RunWithContext(ctx)
	return out
}

// pods is the informer for the pods that a label selector selects.
func (i *informers) pods(ctx context.Context, cl *cluster.Client, selector string) *informer {
	return i.watch(ctx, cl, kind.Pods, metav1.ListOptions{LabelSelector: selector}, typed[corev1.Pod])
}

// wait waits until the informer has seen everything that exists. It fails while the resource cannot be watched.
func (i *informer) wait(ctx context.Context) error {
	for late := time.After(retry.AnswerTimeout); ; {
		i.mu.Lock()
		failure := i.failure
		changed := i.changed
		i.mu.Unlock()
		if failure != nil {
			return failure
		}
		select {
		case <-i.synced:
			return nil
		case <-changed:
		case <-late:
			return i.late
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// componentIndex is the indexer of byComponent.
func componentIndex(o any) ([]string, error) {
	m, ok := o.(metav1.Object)
	if !ok {
		return nil, nil
	}
	if e, ok := o.(*corev1.Event); ok {
		return []string{e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name}, nil
	}
	return []string{string(topology.IDFromLabels(m.GetLabels()))}, nil
}

// typed converts what a watch sees to typed objects, and drops managedFields.
func typed[T any, P interface {
	*T
	metav1.Object
}](o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	out := P(new(T))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, err
	}
	out.SetManagedFields(nil)
	return out, nil
}

// untyped drops managedFields.
func untyped(o any) (any, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
	}
	return o, nil
}

// indexed returns the objects of an index.
func indexed[T any](i *informer, key string) []T {
	all, _ := i.ByIndex(byComponent, key) // the index exists
	out := make([]T, 0, len(all))
	for _, o := range all {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

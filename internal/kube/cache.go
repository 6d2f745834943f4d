package kube

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

	"github.com/kcpctl/kcpctl/internal/topology"
)

// byComponent is the index of what belongs to a component.
const byComponent = "component"

// caches keep what the components of a cluster run on up to date by watches.
type caches struct {
	mu      sync.Mutex
	watched map[string]*watched
}

// watched is what a watch has seen.
type watched struct {
	cache.Indexer
	synced <-chan struct{}
	// failed gets the first error that trying again does not mend.
	failed chan error
	// late is the error of a watch that does not begin.
	late error
}

// watch returns what is known of a kind, and starts to watch it when it is first asked for. It does not wait.
func (s *site) watch(ctx context.Context, r schema.GroupVersionResource, o metav1.ListOptions, convert cache.TransformFunc) *watched {
	s.caches.mu.Lock()
	defer s.caches.mu.Unlock()
	if w := s.caches.watched[r.Resource]; w != nil {
		return w
	}
	client := s.resource(r)
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, lo metav1.ListOptions) (runtime.Object, error) {
			lo.LabelSelector, lo.FieldSelector = o.LabelSelector, o.FieldSelector
			return client.List(ctx, lo)
		},
		WatchFuncWithContext: func(ctx context.Context, lo metav1.ListOptions) (watch.Interface, error) {
			lo.LabelSelector, lo.FieldSelector = o.LabelSelector, o.FieldSelector
			return client.Watch(ctx, lo)
		},
	}, &unstructured.Unstructured{}, 0, cache.Indexers{byComponent: componentIndex})
	w := &watched{
		Indexer: informer.GetIndexer(), synced: informer.HasSyncedChecker().Done(),
		failed: make(chan error, 1), late: s.explain(errNoAnswer, "watch %s", r.Resource),
	}
	// Neither fails before the informer is started.
	_ = informer.SetTransform(convert)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || isTLS(err) {
			select {
			case w.failed <- s.explain(err, "watch %s", r.Resource):
			default:
			}
		}
	})
	if s.caches.watched == nil {
		s.caches.watched = map[string]*watched{}
	}
	s.caches.watched[r.Resource] = w
	go informer.RunWithContext(ctx)
	return w
}

// wait waits until everything that exists has been seen.
func (w *watched) wait(ctx context.Context) error {
	select {
	case <-w.synced:
		return nil
	case err := <-w.failed:
		w.failed <- err // for the next who asks
		return err
	case <-time.After(answerTime):
		return w.late
	case <-ctx.Done():
		return context.Cause(ctx)
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

// typed makes typed objects of what a watch sees, without what nobody reads.
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

// slim keeps an object as it is, without what nobody reads.
func slim(o any) (any, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
	}
	return o, nil
}

// indexed returns the objects of an index.
func indexed[T any](w *watched, key string) []T {
	all, _ := w.ByIndex(byComponent, key) // the index exists
	out := make([]T, 0, len(all))
	for _, o := range all {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

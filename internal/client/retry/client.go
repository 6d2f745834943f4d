package retry

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
)

// Client is a dynamic client that retries requests that fail for a passing reason. Where it is not known whether a
// request was carried out, it finds out. Watches only need to start in time; the informer restarts them.
// DeleteCollection, Patch and ApplyStatus are not retried.
type Client struct {
	dynamic.Interface
	// OnSlow is called with errors of an API server that keeps failing. It may be nil.
	OnSlow func(error)
}

// Resource implements dynamic.Interface.
func (c Client) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	all := c.Interface.Resource(r)
	return allNamespaces{resource{all, c.OnSlow}, all}
}

// allNamespaces is a resource in all namespaces.
type allNamespaces struct {
	resource
	all dynamic.NamespaceableResourceInterface
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (a allNamespaces) Namespace(name string) dynamic.ResourceInterface {
	return resource{a.all.Namespace(name), a.onSlow}
}

// resource is a resource in one namespace or in all.
type resource struct {
	dynamic.ResourceInterface
	onSlow func(error)
}

// withRetry makes a request that can be repeated without harm.
func withRetry[T any](
	ctx context.Context, r resource, retriable func(error) bool, do func(context.Context) (T, error),
) (T, error) {
	p := Policy{Limit: Limit, Retriable: retriable, OnSlow: r.onSlow}
	return Do(ctx, p, func() (T, error) { return WithTimeout(ctx, do) })
}

// Get implements dynamic.ResourceInterface.
func (r resource) Get(
	ctx context.Context, name string, o metav1.GetOptions, sub ...string,
) (*unstructured.Unstructured, error) {
	return withRetry(ctx, r, IsTransient, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return r.ResourceInterface.Get(ctx, name, o, sub...)
	})
}

// List implements dynamic.ResourceInterface.
func (r resource) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return withRetry(ctx, r, IsTransient, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return r.ResourceInterface.List(ctx, o)
	})
}

// Apply implements dynamic.ResourceInterface. Applying the same object again changes nothing.
func (r resource) Apply(
	ctx context.Context, name string, u *unstructured.Unstructured, o metav1.ApplyOptions, sub ...string,
) (*unstructured.Unstructured, error) {
	return withRetry(ctx, r, isTransientApply, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return r.ResourceInterface.Apply(ctx, name, u, o, sub...)
	})
}

// Delete implements dynamic.ResourceInterface. An object that an earlier attempt has deleted is not found.
func (r resource) Delete(ctx context.Context, name string, o metav1.DeleteOptions, sub ...string) error {
	_, err := withRetry(ctx, r, IsTransient, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.ResourceInterface.Delete(ctx, name, o, sub...)
	})
	return err
}

// Create implements dynamic.ResourceInterface.
func (r resource) Create(
	ctx context.Context, u *unstructured.Unstructured, o metav1.CreateOptions, sub ...string,
) (*unstructured.Unstructured, error) {
	return r.writeOnce(ctx, u, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return r.ResourceInterface.Create(ctx, u, o, sub...)
	})
}

// Update implements dynamic.ResourceInterface.
func (r resource) Update(
	ctx context.Context, u *unstructured.Unstructured, o metav1.UpdateOptions, sub ...string,
) (*unstructured.Unstructured, error) {
	return r.writeOnce(ctx, u, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return r.ResourceInterface.Update(ctx, u, o, sub...)
	})
}

// Watch implements dynamic.ResourceInterface. The watch lasts as long as ctx, but it must start in time.
func (r resource) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(AnswerTimeout, func() { cancel(ErrNoAnswer) })
	w, err := r.ResourceInterface.Watch(ctx, o)
	if !late.Stop() && err != nil {
		err = ErrNoAnswer
	}
	return w, err
}

// writeOnce makes a request that can be carried out only once. If a retry conflicts with an object that is equal to
// ours, an earlier attempt succeeded and its response was lost.
func (r resource) writeOnce(
	ctx context.Context, u *unstructured.Unstructured, do func(context.Context) (*unstructured.Unstructured, error),
) (*unstructured.Unstructured, error) {
	retried := false
	return withRetry(ctx, r, IsTransient, func(ctx context.Context) (*unstructured.Unstructured, error) {
		out, err := do(ctx)
		if retried && IsWriteConflict(err) {
			live, e := r.ResourceInterface.Get(ctx, u.GetName(), metav1.GetOptions{})
			if e == nil && plan.Same(live, u) {
				return live, nil
			}
		}
		retried = true
		return out, err
	})
}

package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/plan"
)

const (
	// persistence is how long a request that fails for a passing reason is tried again: long enough for an API server that
	// starts anew, or an etcd that elects a leader.
	persistence = 30 * time.Second
	// firstPause is how long after the first failure it is tried again; pauses double up to the longest.
	firstPause   = 200 * time.Millisecond
	longestPause = 4 * time.Second
	// tellingPause is the pause after which the user hears of it.
	tellingPause = time.Second
	// firstPersistence is the same for the first request of all, after which it is known that there is an API server.
	firstPersistence = 2 * time.Second
	// answerTime is how long an API server may take for an answer. It gives up itself after a minute.
	answerTime = 65 * time.Second
)

// errNoAnswer says that an API server took a request and did not answer it in time.
var errNoAnswer = fmt.Errorf("no answer within %s", answerTime)

// retry says how something is done again.
type retry struct {
	// limit is how long it may go on to fail.
	limit time.Duration
	// passes tells which errors are worth another try.
	passes func(error) bool
	// tell is told of one that does not pass quickly. It may be nil.
	tell func(error)
}

// again does something until it works, fails for good, or has failed for too long. It begins nothing once the context has ended,
// be it that the run has lost its lock.
func again[T any](ctx context.Context, r retry, do func() (T, error)) (T, error) {
	late := time.NewTimer(r.limit)
	defer late.Stop()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if ctx.Err() != nil {
			var none T
			return none, context.Cause(ctx)
		}
		out, err := do()
		if err == nil || !r.passes(err) {
			return out, err
		}
		if pause > tellingPause && r.tell != nil {
			r.tell(err)
		}
		select {
		case <-ctx.Done():
			return out, context.Cause(ctx)
		case <-late.C:
			return out, err
		case <-time.After(pause):
		}
	}
}

// inTime makes a request, which fails if it is not answered in time.
func inTime[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeoutCause(ctx, answerTime, errNoAnswer)
	defer cancel()
	out, err := do(limited)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errNoAnswer) {
		err = errNoAnswer
	}
	return out, err
}

// patient is a client that makes requests again if they fail for a passing reason. Where it is not known whether a request
// was carried out, it finds out. Watches only have to begin in time: who watches begins again himself.
type patient struct {
	dynamic.Interface
	// tell is told of an API server that is in trouble for longer.
	tell func(error)
}

// Resource implements dynamic.Interface.
func (p patient) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	all := p.Interface.Resource(r)
	return patientKind{patientResource{all, p.tell}, all}
}

// patientKind is a kind of object, in all namespaces.
type patientKind struct {
	patientResource
	all dynamic.NamespaceableResourceInterface
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (p patientKind) Namespace(name string) dynamic.ResourceInterface {
	return patientResource{p.all.Namespace(name), p.tell}
}

// patientResource is a kind of object, in a namespace or in all.
type patientResource struct {
	dynamic.ResourceInterface
	tell func(error)
}

// persist makes a request that can be made again without harm, as long as what it fails for passes.
func persist[T any](ctx context.Context, p patientResource, passes func(error) bool, do func(context.Context) (T, error)) (T, error) {
	return again(ctx, retry{persistence, passes, p.tell}, func() (T, error) { return inTime(ctx, do) })
}

// Get implements dynamic.ResourceInterface.
func (p patientResource) Get(ctx context.Context, name string, o metav1.GetOptions, sub ...string) (*unstructured.Unstructured, error) {
	return persist(ctx, p, isTransient, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return p.ResourceInterface.Get(ctx, name, o, sub...)
	})
}

// List implements dynamic.ResourceInterface.
func (p patientResource) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return persist(ctx, p, isTransient, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return p.ResourceInterface.List(ctx, o)
	})
}

// Apply implements dynamic.ResourceInterface. To apply the same again changes nothing.
func (p patientResource) Apply(ctx context.Context, name string, u *unstructured.Unstructured, o metav1.ApplyOptions, sub ...string,
) (*unstructured.Unstructured, error) {
	return persist(ctx, p, isTransientApply, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return p.ResourceInterface.Apply(ctx, name, u, o, sub...)
	})
}

// Delete implements dynamic.ResourceInterface. An object that an earlier try has deleted is not found.
func (p patientResource) Delete(ctx context.Context, name string, o metav1.DeleteOptions, sub ...string) error {
	_, err := persist(ctx, p, isTransient, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.ResourceInterface.Delete(ctx, name, o, sub...)
	})
	return err
}

// Create implements dynamic.ResourceInterface.
func (p patientResource) Create(ctx context.Context, u *unstructured.Unstructured, o metav1.CreateOptions, sub ...string,
) (*unstructured.Unstructured, error) {
	return p.once(ctx, u, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return p.ResourceInterface.Create(ctx, u, o, sub...)
	})
}

// Update implements dynamic.ResourceInterface.
func (p patientResource) Update(ctx context.Context, u *unstructured.Unstructured, o metav1.UpdateOptions, sub ...string,
) (*unstructured.Unstructured, error) {
	return p.once(ctx, u, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return p.ResourceInterface.Update(ctx, u, o, sub...)
	})
}

// Watch implements dynamic.ResourceInterface.
func (p patientResource) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx) // it goes on for as long as the one before
	late := time.AfterFunc(answerTime, func() { cancel(errNoAnswer) })
	w, err := p.ResourceInterface.Watch(ctx, o)
	if !late.Stop() && err != nil {
		err = errNoAnswer
	}
	return w, err
}

// once makes a request that can be carried out only once. If another try is refused because there is something already, and
// that is just what was to be written, then an earlier one was carried out although nobody told.
func (p patientResource) once(ctx context.Context, u *unstructured.Unstructured,
	do func(context.Context) (*unstructured.Unstructured, error),
) (*unstructured.Unstructured, error) {
	tried := false
	return persist(ctx, p, isTransient, func(ctx context.Context) (*unstructured.Unstructured, error) {
		out, err := do(ctx)
		if tried && isTaken(err) {
			if live, e := p.ResourceInterface.Get(ctx, u.GetName(), metav1.GetOptions{}); e == nil && plan.Same(live, u) {
				return live, nil
			}
		}
		tried = true
		return out, err
	})
}

package watch

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// lister lists and watches a resource. Lists have items that are unstructured.
type lister interface {
	list(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error)
	watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
}

// whole reads whole objects.
type whole struct{ dynamic.ResourceInterface }

func (w whole) list(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return w.List(ctx, o)
}

func (w whole) watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	return w.Watch(ctx, o)
}

// partial reads the metadata of objects.
type partial struct {
	metadata.ResourceInterface
	resource schema.GroupVersionResource
}

func (p partial) list(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	found, err := p.List(ctx, o)
	if err != nil {
		return nil, err
	}
	out := &unstructured.UnstructuredList{}
	out.SetResourceVersion(found.ResourceVersion)
	out.SetContinue(found.Continue)
	for i := range found.Items {
		u, err := metadataOf(p.resource, &found.Items[i])
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, *u)
	}
	return out, nil
}

func (p partial) watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	return p.Watch(ctx, o)
}

// metadataOf returns an object that has its metadata only, and no kind, which the answer does not have.
func metadataOf(r schema.GroupVersionResource, m *metav1.PartialObjectMetadata) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m.ObjectMeta)
	if err != nil {
		return nil, fmt.Errorf("metadata of %s %s: %w", r.GroupResource(), m.Name, err)
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": r.GroupVersion().String(),
		"metadata": fields}}, nil
}

// unstructuredEvent returns an event with an object that is unstructured.
func unstructuredEvent(r schema.GroupVersionResource, e apiwatch.Event) apiwatch.Event {
	m, ok := e.Object.(*metav1.PartialObjectMetadata)
	if !ok {
		return e
	}
	u, err := metadataOf(r, m)
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		return apiwatch.Event{Type: apiwatch.Error, Object: &status}
	}
	e.Object = u
	return e
}

// config returns the configuration of a path below an endpoint.
func (s *Set) config(endpoint, path string) *rest.Config {
	cfg := rest.CopyConfig(s.o.Config)
	cfg.Host = endpoint + path
	cfg.QPS = -1
	return cfg
}

// client returns a client for a path below an endpoint. All share the connections of the set.
func (s *Set) client(endpoint, path string) (dynamic.Interface, error) {
	cfg := s.config(endpoint, path)
	d, err := dynamic.NewForConfigAndClient(cfg, s.http)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return d, nil
}

// lister returns what reads a source.
func (s *Set) lister(at Source) (lister, error) {
	if !s.partial(at.Resource) {
		d, err := s.client(at.Endpoint, s.o.Path)
		if err != nil {
			return nil, err
		}
		return whole{d.Resource(at.Resource)}, nil
	}
	cfg := s.config(at.Endpoint, s.o.Path)
	m, err := metadata.NewForConfigAndClient(cfg, s.http)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return partial{m.Resource(at.Resource), at.Resource}, nil
}

// partial reports whether the set has the metadata of the objects of a resource only.
func (s *Set) partial(r schema.GroupVersionResource) bool {
	return s.o.MetadataOnly != nil && s.o.MetadataOnly(r)
}

// Resource returns a client for a resource in one logical cluster, at the endpoint that serves the object. An empty
// cluster means a plain API server. If the set has this resource of the endpoint, it shows what is written and deleted
// with the client before its watch does.
func (s *Set) Resource(endpoint, cluster string,
	r schema.GroupVersionResource) (dynamic.NamespaceableResourceInterface, error) {
	path := ""
	if cluster != "" {
		path = "/clusters/" + cluster
	}
	d, err := s.client(endpoint, path)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	src := s.sources[Source{endpoint, r}]
	s.mu.RUnlock()
	if src == nil {
		return d.Resource(r), nil
	}
	w := writer{ResourceInterface: d.Resource(r), source: src, selector: s.selector, cluster: cluster}
	return namespaceable{w, d.Resource(r)}, nil
}

// Fetch returns a whole object: from memory, or, if the set has only its metadata, from the API server, which can have
// a later version of it. The error of an object that the set does not have, or that is gone or replaced by another one
// of its name, is NotFound.
func (s *Set) Fetch(ctx context.Context, r schema.GroupVersionResource, k Key) (Object, error) {
	o, ok := s.Get(r, k)
	if !ok {
		return Object{}, apierrors.NewNotFound(r.GroupResource(), k.Name)
	}
	if !o.Partial {
		return o, nil
	}
	client, err := s.Resource(o.Endpoint, k.Cluster, r)
	if err != nil {
		return Object{}, err
	}
	live, err := client.Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	if err != nil {
		return Object{}, fmt.Errorf("read %s %s: %w", r.GroupResource(), k, err)
	}
	if live.GetUID() != o.GetUID() {
		return Object{}, apierrors.NewNotFound(r.GroupResource(), k.Name)
	}
	return Object{Unstructured: live, Endpoint: o.Endpoint}, nil
}

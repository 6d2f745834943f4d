// Package watch keeps the objects of many API servers in memory: of the virtual workspaces of several shards, or of one
// physical cluster. Endpoints and resources come and go at run time. Each pair of them is listed and watched on its own, so
// that the error of one does not affect the others.
package watch

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// AllClusters is the path of all logical clusters below the URL of a virtual workspace.
const AllClusters = "/clusters/*"

// RequestTimeout is how long the requests for an object may take, so that no worker waits for good. An API server gives up after a minute.
const RequestTimeout = 65 * time.Second

// clusterAnnotation is the annotation with the logical cluster of an object (kcp: logicalcluster.AnnotationKey).
const clusterAnnotation = "kcp.io/cluster"

// Key identifies an object of a resource. Cluster is its logical cluster, empty for objects of a physical cluster.
type Key struct {
	Cluster, Namespace, Name string
}

// KeyOf returns the key of an object.
func KeyOf(o *unstructured.Unstructured) Key {
	return Key{o.GetAnnotations()[clusterAnnotation], o.GetNamespace(), o.GetName()}
}

// compare orders keys by logical cluster, namespace and name.
func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Cluster, other.Cluster), cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}

// String is the key as cluster|namespace/name.
func (k Key) String() string { return k.Cluster + "|" + k.Namespace + "/" + k.Name }

// Source is a resource at an endpoint.
type Source struct {
	// Endpoint is the URL of an API server, or of a virtual workspace on a shard.
	Endpoint string
	Resource schema.GroupVersionResource
}

// Failure is why a source cannot be listed or watched at the moment. It is retried.
type Failure struct {
	Source
	Err error
	// Since is when the first of the failures in a row was seen.
	Since time.Time
}

func (f Failure) Error() string {
	return fmt.Sprintf("watch %s at %s: %v", f.Resource.GroupResource(), f.Endpoint, f.Err)
}

// Options are what a Set watches, and who is told.
type Options struct {
	// Config has the credentials. The endpoints replace its host.
	Config *rest.Config
	// Path is the path below each endpoint: AllClusters for virtual workspaces.
	Path string
	// LabelSelector and FieldSelector limit the objects.
	LabelSelector, FieldSelector string
	// Keep are the paths of the fields that the objects have, such as metadata and status.conditions: the others need memory, and are not
	// read. Nil keeps all.
	Keep [][]string
	// Changed is called after an object was added, changed or removed. It must not block. Nil ignores changes.
	Changed func(schema.GroupVersionResource, Key)
	// State is called when a source fails, works again, or is listed for the first time. It must not block. Nil ignores it.
	State func(Source, error)
	// Relisted is called after a source was listed again, because its watch could not be continued. Changed is not called for objects that
	// have come and gone since the watch ended. It must not block. Nil ignores it.
	Relisted func(Source)
	Now      func() time.Time
}

// Set is a set of sources with their objects.
type Set struct {
	o    Options
	http *http.Client
	ctx  context.Context
	work sync.WaitGroup
	// slimmer is for the objects of all sources.
	slimmer slimmer

	mu      sync.RWMutex
	sources map[Source]*source
	// updated reports whether Update was called: before that, nothing is complete.
	updated bool
	stopped bool
}

// New returns a set without sources. It ends with Stop, or with the context.
func New(ctx context.Context, o Options) (*Set, error) {
	hc, err := rest.HTTPClientFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", o.Config.Host, err)
	}
	if o.Changed == nil {
		o.Changed = func(schema.GroupVersionResource, Key) {}
	}
	if o.State == nil {
		o.State = func(Source, error) {}
	}
	if o.Relisted == nil {
		o.Relisted = func(Source) {}
	}
	return &Set{o: o, http: hc, ctx: ctx, slimmer: slimmer{keep: o.Keep}, sources: map[Source]*source{}}, nil
}

// Update starts the sources that are new, and stops those that are not wanted any longer: their objects are forgotten. It waits
// until these have ended.
func (s *Set) Update(endpoints []string, resources []schema.GroupVersionResource) error {
	wanted := map[Source]bool{}
	for _, e := range endpoints {
		for _, r := range resources {
			wanted[Source{strings.TrimRight(e, "/"), r}] = true
		}
	}
	ended, err := s.update(wanted)
	for _, src := range ended {
		src.stop()
		for _, k := range src.keys() {
			s.o.Changed(src.Resource, k)
		}
	}
	return err
}

// update starts new sources, and returns those to stop.
func (s *Set) update(wanted map[Source]bool) (ended []*source, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, context.Canceled
	}
	for at, src := range s.sources {
		if !wanted[at] {
			delete(s.sources, at)
			ended = append(ended, src)
		}
	}
	for at := range wanted {
		if s.sources[at] != nil {
			continue
		}
		client, err := s.client(at.Endpoint, s.o.Path)
		if err != nil {
			return ended, err
		}
		s.sources[at] = s.start(at, client)
	}
	s.updated = true
	return ended, nil
}

// Stop ends all sources and waits for them.
func (s *Set) Stop() {
	s.mu.Lock()
	s.stopped = true
	all := s.sources
	s.sources = map[Source]*source{}
	s.mu.Unlock()
	for _, src := range all {
		src.stop()
	}
	s.work.Wait()
	s.http.CloseIdleConnections()
}

// client returns a client for a path below an endpoint. All share the connections of the set.
func (s *Set) client(endpoint, path string) (dynamic.Interface, error) {
	cfg := rest.CopyConfig(s.o.Config)
	cfg.Host, cfg.QPS = endpoint+path, -1
	d, err := dynamic.NewForConfigAndClient(cfg, s.http)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return d, nil
}

// Object is an object and the endpoint that serves it. It is shared: callers must not change it.
type Object struct {
	*unstructured.Unstructured
	Endpoint string
}

// Get returns an object, or false if no endpoint has it.
func (s *Set) Get(r schema.GroupVersionResource, k Key) (Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for at, src := range s.sources {
		if at.Resource != r {
			continue
		}
		if o := src.get(k); o != nil {
			return Object{o, at.Endpoint}, true
		}
	}
	return Object{}, false
}

// List returns the objects of a resource, in the order of their keys.
func (s *Set) List(r schema.GroupVersionResource) []Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	type keyed struct {
		Key
		Object
	}
	var found []keyed
	for at, src := range s.sources {
		if at.Resource == r {
			src.each(func(k Key, o *unstructured.Unstructured) { found = append(found, keyed{k, Object{o, at.Endpoint}}) })
		}
	}
	slices.SortFunc(found, func(a, b keyed) int { return a.compare(b.Key) })
	out := make([]Object, len(found))
	for i, o := range found {
		out[i] = o.Object
	}
	return out
}

// Count returns the number of objects of a resource that match. Nil matches all.
func (s *Set) Count(r schema.GroupVersionResource, match func(*unstructured.Unstructured) bool) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for at, src := range s.sources {
		if at.Resource == r {
			src.each(func(_ Key, o *unstructured.Unstructured) {
				if match == nil || match(o) {
					n++
				}
			})
		}
	}
	return n
}

// In returns the objects of a resource in a namespace of a logical cluster, in no order.
func (s *Set) In(r schema.GroupVersionResource, cluster, namespace string) []Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []Object
	for at, src := range s.sources {
		if at.Resource != r {
			continue
		}
		for _, o := range src.in(cluster, namespace) {
			out = append(out, Object{o, at.Endpoint})
		}
	}
	return out
}

// Resource returns a client for a resource in one logical cluster, at the endpoint that serves the object. An empty cluster is
// that of an API server.
func (s *Set) Resource(endpoint, cluster string, r schema.GroupVersionResource) (dynamic.NamespaceableResourceInterface, error) {
	path := ""
	if cluster != "" {
		path = "/clusters/" + cluster
	}
	d, err := s.client(endpoint, path)
	if err != nil {
		return nil, err
	}
	return d.Resource(r), nil
}

// Listed reports whether every source was listed at least once.
func (s *Set) Listed() bool {
	return s.every(func(src *source) bool {
		listed, _ := src.state()
		return listed
	})
}

// Complete reports whether every source was listed and is watched: an object that the set does not have does not exist.
func (s *Set) Complete() bool { return s.every((*source).complete) }

// every reports whether the sources are known, and something holds for each of them.
func (s *Set) every(holds func(*source) bool) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, src := range s.sources {
		if !holds(src) {
			return false
		}
	}
	return s.updated
}

// ListedAt reports whether a source was listed at least once.
func (s *Set) ListedAt(at Source) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	src := s.sources[at]
	if src == nil {
		return false
	}
	listed, _ := src.state()
	return listed
}

// CompleteAt reports whether every source of an endpoint was listed and is watched.
func (s *Set) CompleteAt(endpoint string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := false
	for at, src := range s.sources {
		if at.Endpoint != endpoint {
			continue
		}
		found = true
		if !src.complete() {
			return false
		}
	}
	return found
}

// Failures returns the sources that fail now, in the order of their endpoints and resources.
func (s *Set) Failures() []Failure {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []Failure
	for _, src := range s.sources {
		if _, f := src.state(); f != nil {
			out = append(out, *f)
		}
	}
	slices.SortFunc(out, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Resource.String(), b.Resource.String()))
	})
	return out
}

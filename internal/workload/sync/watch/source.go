package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// The delays between attempts to list or watch. The longest leaves time to notice within a heartbeat's limit that a
// server is back.
const (
	firstDelay = 500 * time.Millisecond
	lastDelay  = 10 * time.Second
)

// pageSize is how many objects a request lists at most. The objects of a page are stored before the next one comes, so
// that not all objects are in memory as they were decoded.
const pageSize = 500

// eventsAhead is how many events of a watch are read before the reflector takes them, so that neither waits.
const eventsAhead = 1024

// source watches a resource at an endpoint. It is the store of its reflector.
type source struct {
	Source
	set    *Set
	client *rest.RESTClient
	cancel context.CancelFunc
	done   chan struct{}
	line   *line
	// decoding is held while an object is decoded: a list must not come in between.
	decoding sync.Mutex

	mu      sync.RWMutex
	objects store
	listed  bool
	failure *Failure
	// stale reports whether the watch has failed: objects come and go unseen until it is continued, or until the next
	// list.
	stale bool
	// own are the writes that the source has not shown yet, see own. writes is the number of writes, and began what it
	// was when the last list began.
	own           map[Key]own
	writes, began uint64
}

func newSource(at Source, s *Set) *source {
	return &source{Source: at, set: s, done: make(chan struct{}), line: newLine(), objects: store{}, own: map[Key]own{}}
}

// start starts a source. The set is locked.
func (s *Set) start(at Source, client *rest.RESTClient) *source {
	// client-go would log each failure that State reports.
	quiet := logr.Discard()
	ctx, cancel := context.WithCancel(klog.NewContext(s.ctx, quiet))
	src := newSource(at, s)
	src.cancel = cancel
	src.client = client
	reads := dynamic.New(client).Resource(at.Resource)
	r := cache.NewReflectorWithOptions(src.listWatch(reads), &late{}, src, cache.ReflectorOptions{
		Logger:          &quiet,
		Name:            at.Endpoint,
		TypeDescription: at.Resource.String(),
		Backoff:         &wait.Backoff{Duration: firstDelay, Cap: lastDelay, Steps: 10, Factor: 2, Jitter: 0.2},
	})
	r.WatchListPageSize = pageSize
	s.work.Go(func() {
		defer src.line.turns.ShutDown()
		r.RunWithContext(ctx)
	})
	s.work.Go(func() {
		defer close(src.done)
		src.decode()
	})
	return src
}

func (s *source) stop() {
	s.cancel()
	<-s.done
}

// listWatch lists and watches a resource, and records whether that works.
func (s *source) listWatch(reads dynamic.ResourceInterface) cache.ListerWatcher {
	restrict := func(o *metav1.ListOptions) {
		o.LabelSelector = s.set.o.LabelSelector
		o.FieldSelector = s.set.o.FieldSelector
	}
	return plainList{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			restrict(&o)
			if o.Continue == "" {
				s.mu.Lock()
				s.began = s.writes
				s.mu.Unlock()
			}
			o.ResourceVersion = "" // else an API server answers from its cache, without pages
			list, err := reads.List(ctx, o)
			s.result(ctx, err)
			if err != nil {
				return nil, err
			}
			return s.set.page(list), nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			restrict(&o)
			w, err := s.stream(ctx, o)
			if err == nil {
				s.setStale(false) // before State reports that it works
			}
			s.result(ctx, err)
			if err != nil {
				return nil, err
			}
			return w, nil
		},
	}}
}

// plainList is a ListWatch that starts with a list. Watches that start with one are not known to work for all logical
// clusters of a virtual workspace.
type plainList struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported implements an interface of client-go (util/watchlist).
func (plainList) IsWatchListSemanticsUnSupported() bool { return true }

func (s *source) setStale(stale bool) {
	s.mu.Lock()
	s.stale = stale
	s.mu.Unlock()
}

func (s *source) result(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the source is stopped
	}
	s.mu.Lock()
	before := s.failure
	switch {
	case err == nil:
		s.failure = nil
	case before == nil:
		s.failure = &Failure{s.Source, err, s.set.o.Now()}
	default:
		s.failure = &Failure{s.Source, err, before.Since}
	}
	s.stale = s.stale || err != nil
	changed := before != nil && err == nil || err != nil && (before == nil || before.Err.Error() != err.Error())
	s.mu.Unlock()
	if changed {
		s.set.o.State(s.Source, err)
	}
}

func (s *source) state() (listed bool, failure *Failure) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.listed, s.failure
}

// complete reports whether the objects are those that there are, apart from events on their way.
func (s *source) complete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.listed && !s.stale
}

func (s *source) get(k Key) held {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects.get(k)
}

func (s *source) in(cluster, namespace string) []held {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.objects[cluster][namespace]))
}

func (s *source) keysIn(cluster, namespace, class string) (out []Key) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, h := range s.objects[cluster][namespace] {
		if h.class == class {
			out = append(out, Key{cluster, namespace, name})
		}
	}
	return out
}

func (s *source) each(f func(Key, held)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.objects.each(f)
}

func (s *source) keys(match func(held) bool) (out []Key) {
	s.each(func(k Key, h held) {
		if match(h) {
			out = append(out, k)
		}
	})
	return out
}

// forget forgets the objects of a source that has ended, and returns their keys.
func (s *source) forget() []Key {
	all := s.keys(func(held) bool { return true })
	s.mu.Lock()
	s.objects = store{}
	clear(s.own)
	s.line.empty(0)
	s.mu.Unlock()
	return all
}

// Add implements cache.ReflectorStore.
func (s *source) Add(o any) error {
	if l, ok := o.(*late); ok {
		s.line.add(l)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *source) Update(o any) error { return s.Add(o) }

// Delete implements cache.ReflectorStore.
func (s *source) Delete(o any) error {
	if l, ok := o.(*late); ok {
		l.gone = true
		s.line.add(l)
	}
	return nil
}

// Replace implements cache.ReflectorStore. Only differences are reported. The list has what waits to be decoded.
func (s *source) Replace(list []any, resourceVersion string) error {
	next := store{}
	for _, o := range list {
		if i, ok := o.(*item); ok {
			next.set(i.key, i.held)
		}
	}
	s.decoding.Lock()
	s.mu.Lock()
	previous := s.objects
	first := !s.listed
	changed := s.merge(next, versionOf(resourceVersion))
	s.objects = next
	s.listed = true
	s.stale = false
	// The keys are collected here, because the store changes after it is unlocked.
	next.each(func(k Key, h held) {
		if p := previous.get(k); !p.exists() || p.version != h.version {
			changed = append(changed, k)
		}
	})
	previous.each(func(k Key, _ held) {
		if !next.get(k).exists() {
			changed = append(changed, k)
		}
	})
	s.mu.Unlock()
	s.decoding.Unlock()
	for _, k := range changed {
		s.set.o.Changed(s.Resource, k)
	}
	if first {
		s.set.o.State(s.Source, nil)
		return nil
	}
	s.set.o.Relisted(s.Source)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *source) Resync() error { return nil }

// client returns a client for a path below an endpoint. All share the connections of the set.
func (s *Set) client(endpoint, path string) (*rest.RESTClient, error) {
	cfg := dynamic.ConfigFor(s.o.Config)
	cfg.Host = endpoint + path
	cfg.QPS = -1
	cfg.AcceptContentTypes = runtime.ContentTypeJSON // of streams
	client, err := rest.UnversionedRESTClientForConfigAndClient(cfg, s.http)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", cfg.Host, err)
	}
	return client, nil
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
	client, err := s.client(endpoint, path)
	if err != nil {
		return nil, err
	}
	d := dynamic.New(client)
	s.mu.RLock()
	src := s.sources[Source{endpoint, r}]
	s.mu.RUnlock()
	if src == nil {
		return d.Resource(r), nil
	}
	w := writer{ResourceInterface: d.Resource(r), source: src, selector: s.selector, cluster: cluster}
	return namespaceable{w, d.Resource(r)}, nil
}

// item is an object of a list as the set keeps it. client-go hands it from the pages of a list to source.Replace.
type item struct {
	key  Key
	held held
}

// GetObjectKind implements runtime.Object.
func (i *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Items are not changed.
func (i *item) DeepCopyObject() runtime.Object { return i }

// page returns a page of a list whose objects are as the set keeps them.
func (s *Set) page(list *unstructured.UnstructuredList) runtime.Object {
	out := &metainternal.List{
		ListMeta: metav1.ListMeta{ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue()},
		Items:    make([]runtime.Object, len(list.Items)),
	}
	for i := range list.Items {
		u := &unstructured.Unstructured{Object: list.Items[i].Object} // a pointer into the list would keep all of it
		list.Items[i].Object = nil
		out.Items[i] = &item{KeyOf(u), s.hold(u)}
	}
	return out
}

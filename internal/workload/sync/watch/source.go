package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
			var w apiwatch.Interface
			err := s.restored(ctx, reads, o)
			if err == nil {
				w, err = s.stream(ctx, o)
			}
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

// restored fails with 410 Gone, so that the source lists again, if a server that has failed has an earlier version now
// than the one from which its watch continues: a backup was restored. Until that version is reached, such a watch
// would not show any event. client-go continues watches after it was refused a connection.
func (s *source) restored(ctx context.Context, reads dynamic.ResourceInterface, o metav1.ListOptions) error {
	if s.complete() {
		return nil
	}
	// A label selector could make the server read many objects for one.
	list, err := reads.List(ctx, metav1.ListOptions{Limit: 1, FieldSelector: o.FieldSelector})
	if err != nil || versionOf(list.GetResourceVersion()) >= versionOf(o.ResourceVersion) {
		return err
	}
	return apierrors.NewResourceExpired("the server has an earlier version: a backup was restored")
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

// Resource returns a client for a resource in a namespace of one logical cluster, at the endpoint that serves the
// object. An empty cluster means a plain API server, and an empty namespace objects without one. If the set has this
// resource of the endpoint, it shows what is written and deleted with the client before its watch does.
func (s *Set) Resource(endpoint, cluster, namespace string,
	r schema.GroupVersionResource) (dynamic.ResourceInterface, error) {
	path := ""
	if cluster != "" {
		path = "/clusters/" + cluster
	}
	client, err := s.client(endpoint, path)
	if err != nil {
		return nil, err
	}
	in := dynamic.New(client).Resource(r).Namespace(namespace)
	s.mu.RLock()
	src := s.sources[Source{endpoint, r}]
	s.mu.RUnlock()
	if src == nil {
		return in, nil
	}
	return writer{ResourceInterface: in, source: src, selector: s.selector, cluster: cluster, namespace: namespace}, nil
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

// own is a write of this process that a source has not shown yet. The resourceVersions of a source can be compared, as
// client-go's MutationCache does. It ends when the watch shows the object, or its deletion, in that version or a later
// one, and with a list that began after the write: that one is right whatever its version, such as when a backup of the
// API server was restored.
type own struct {
	// version is the resourceVersion of the answer. Zero: the object was only deleted.
	version uint64
	// deleted is the UID of an object that was deleted. Until it is gone, it is shown as being deleted.
	deleted types.UID
	// number is the number of the write in its source.
	number uint64
}

// versionOf returns a resourceVersion as a number, or zero if it is not one.
func versionOf(resourceVersion string) uint64 {
	n, _ := strconv.ParseUint(resourceVersion, 10, 64) // zero with an error
	return n
}

// wrote makes a source show an object as the answer to a write has it.
func (s *source) wrote(u *unstructured.Unstructured) {
	k, version := KeyOf(u), versionOf(u.GetResourceVersion())
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.own[k]
	if version <= max(s.line.shown(k), last.version) {
		return // the watch has shown it, and maybe what has become of it
	}
	if last.deleted == u.GetUID() {
		s.ending(u)
	}
	s.writes++
	s.own[k] = own{version, last.deleted, s.writes}
	s.put(k, s.set.hold(u))
}

// deleted makes a source show an object as one that is being deleted, until it is gone. Where something runs, that is
// not the same as an object that is gone.
func (s *source) deleted(k Key, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.objects.get(k)
	if !h.exists() {
		return
	}
	u := s.set.table.unpack(h.packed)
	if u.GetUID() != uid {
		return
	}
	s.writes++
	s.own[k] = own{s.own[k].version, uid, s.writes}
	s.put(k, s.set.hold(s.ending(u)))
}

func (s *source) ending(u *unstructured.Unstructured) *unstructured.Unstructured {
	if u.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(s.set.o.Now())
		u.SetDeletionTimestamp(&now)
	}
	return u
}

// shows returns an object that the watch shows as the source shows it. It returns false if a later version was written.
// The source is locked.
func (s *source) shows(k Key, u *unstructured.Unstructured, h held) (held, bool) {
	own, waits := s.own[k]
	switch {
	case !waits:
	case versionOf(u.GetResourceVersion()) < own.version:
		return h, false
	case own.deleted == u.GetUID() && u.GetDeletionTimestamp() == nil:
		return s.set.hold(s.ending(u)), true
	default:
		delete(s.own, k)
	}
	return h, true
}

// showsOwn reports whether the watch brings what this process has written and the source already shows, so that it need
// not be decoded. Then the write ends.
func (s *source) showsOwn(k Key, o *late) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, waits := s.own[k]
	if !waits || o.gone || own.deleted != "" || own.version != versionOf(o.ResourceVersion) {
		return false
	}
	delete(s.own, k)
	s.line.done(k, o)
	return true
}

// merge adds to a list the objects that were written after it began. It returns the keys of the other objects that were
// written: the list shows them. The source is locked.
func (s *source) merge(next store, version uint64) (ended []Key) {
	for k, own := range s.own {
		if own.number <= s.began || own.version != 0 && own.version <= version {
			delete(s.own, k)
			ended = append(ended, k)
			continue
		}
		next.set(k, s.objects.get(k))
	}
	s.line.empty(version)
	return ended
}

// put stores an object, or removes it. The source is locked.
func (s *source) put(k Key, h held) {
	if h.exists() {
		s.objects.set(k, h)
	} else {
		s.objects.delete(k)
	}
}

// writer is a client for a resource in a namespace. Its source shows what it writes before the watch does.
type writer struct {
	dynamic.ResourceInterface
	source             *source
	selector           labels.Selector
	cluster, namespace string
}

// wrote hands the answer to a write to the source, and returns it.
func (w writer) wrote(u *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	if err == nil && KeyOf(u).Cluster == w.cluster && w.selector.Matches(labels.Set(u.GetLabels())) {
		w.source.wrote(u.DeepCopy())
	}
	return u, err
}

func (w writer) Create(ctx context.Context, u *unstructured.Unstructured, o metav1.CreateOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	return w.wrote(w.ResourceInterface.Create(ctx, u, o, subresources...))
}

func (w writer) Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	return w.wrote(w.ResourceInterface.Patch(ctx, name, t, data, o, subresources...))
}

func (w writer) Apply(ctx context.Context, name string, u *unstructured.Unstructured, o metav1.ApplyOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	return w.wrote(w.ResourceInterface.Apply(ctx, name, u, o, subresources...))
}

// Delete also tells the source, if the UID is known.
func (w writer) Delete(ctx context.Context, name string, o metav1.DeleteOptions, subresources ...string) error {
	err := w.ResourceInterface.Delete(ctx, name, o, subresources...)
	if err == nil && o.Preconditions != nil && o.Preconditions.UID != nil {
		w.source.deleted(Key{w.cluster, w.namespace, name}, *o.Preconditions.UID)
	}
	return err
}

// Version identifies the content of an object: it changes when another client changes the content, or replaces the
// object by another one of its name, but not with the status.
type Version struct {
	uid        types.UID
	generation int64
	resource   string
}

// VersionOf returns the version of an object. One without a generation, such as a ConfigMap, has no status either, so
// each change counts.
func VersionOf(u *unstructured.Unstructured) Version {
	v := Version{uid: u.GetUID(), generation: u.GetGeneration()}
	if v.generation == 0 {
		v.resource = u.GetResourceVersion()
	}
	return v
}

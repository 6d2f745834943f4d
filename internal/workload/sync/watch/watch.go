// Package watch keeps the objects of many API servers in memory: of the virtual workspaces of several shards, or of one
// physical cluster. Endpoints and resources come and go at run time. Each pair of them is listed and watched on its
// own, so that the error of one does not affect the others.
package watch

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

// AllClusters is the path of all logical clusters below the URL of a virtual workspace.
const AllClusters = "/clusters/*"

// clusterAnnotation is the annotation with the logical cluster of an object (kcp: logicalcluster.AnnotationKey).
const clusterAnnotation = "kcp.io/cluster"

// Key identifies an object of a resource. Cluster is its logical cluster, empty for objects of a physical cluster.
type Key struct {
	Cluster, Namespace, Name string
}

// KeyOf returns the key of an object.
func KeyOf(o metav1.Object) Key {
	return Key{o.GetAnnotations()[clusterAnnotation], o.GetNamespace(), o.GetName()}
}

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Cluster, other.Cluster), cmp.Compare(k.Namespace, other.Namespace),
		cmp.Compare(k.Name, other.Name))
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

// Options are the settings of a Set.
type Options struct {
	// Config has the credentials. The endpoints replace its host.
	Config *rest.Config
	// Path is the path below each endpoint: AllClusters for virtual workspaces.
	Path string
	// LabelSelector and FieldSelector limit the objects.
	LabelSelector, FieldSelector string
	// Keep are the paths of the fields that the objects have, such as metadata and status.conditions: the others need
	// memory, and are not read. Nil keeps all.
	Keep [][]string
	// Class returns the class of an object, such as the value of a label. See Set.Classes and Set.Keys. Nil: all are of
	// the class "".
	Class func(*unstructured.Unstructured) string
	// Changed is called after an object was added, changed or removed. It must not block. Nil ignores changes.
	Changed func(schema.GroupVersionResource, Key)
	// State is called when a source fails, works again, or is listed for the first time. It must not block. Nil ignores
	// it.
	State func(Source, error)
	// Relisted is called after a source was listed again, because its watch could not be continued. Changed is not
	// called for objects that have come and gone since the watch ended. It must not block. Nil ignores it.
	Relisted func(Source)
	Now      func() time.Time
}

// Logged returns a function for Options.State that logs failures, and then calls others.
func Logged(ctx context.Context, then ...func()) func(Source, error) {
	return func(src Source, err error) {
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot watch, retrying", "resource", src.Resource.GroupResource(),
				"endpoint", src.Endpoint)
		}
		for _, f := range then {
			f()
		}
	}
}

// Set is a set of sources with their objects. It keeps them packed, in about a tenth of the memory. Each time that an
// object is read, it is unpacked, which takes several microseconds.
type Set struct {
	o    Options
	http *http.Client
	ctx  context.Context
	work sync.WaitGroup
	// table has the strings that the objects of all sources share.
	table    *table
	selector labels.Selector
	// seed is the seed of the hashes of versions.
	seed maphash.Seed

	mu      sync.RWMutex
	sources map[Source]*source
	// byResource has the sources of each resource.
	byResource map[schema.GroupVersionResource][]*source
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
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %w", o.LabelSelector, err)
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
	return &Set{
		o: o, http: hc, ctx: ctx, table: &table{}, seed: maphash.MakeSeed(), selector: selector,
		sources: map[Source]*source{}, byResource: map[schema.GroupVersionResource][]*source{},
	}, nil
}

// Update starts the sources that are new, and stops the sources that are no longer wanted: their objects are forgotten.
// It waits until these have ended.
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
		for _, k := range src.forget() {
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
			s.byResource[at.Resource] = slices.DeleteFunc(slices.Clone(s.byResource[at.Resource]),
				func(x *source) bool { return x == src })
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
		s.byResource[at.Resource] = append(slices.Clip(s.byResource[at.Resource]), s.sources[at])
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
	s.byResource = map[schema.GroupVersionResource][]*source{}
	s.mu.Unlock()
	for _, src := range all {
		src.stop()
	}
	s.work.Wait()
	s.http.CloseIdleConnections()
}

// Object is an object and the endpoint that serves it. Each caller has its own copy.
type Object struct {
	*unstructured.Unstructured
	Endpoint string
}

// of returns the sources of a resource. The list is not changed: update makes another one.
func (s *Set) of(r schema.GroupVersionResource) []*source {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byResource[r]
}

func (s *Set) object(src *source, h held) Object {
	return Object{s.table.unpack(h.packed), src.Endpoint}
}

// Get returns an object, or false if no endpoint has it.
func (s *Set) Get(r schema.GroupVersionResource, k Key) (Object, bool) {
	src, h := s.find(r, k)
	if src == nil {
		return Object{}, false
	}
	return s.object(src, h), true
}

// find returns an object as it is kept, and its source, which is nil if no endpoint has the object.
func (s *Set) find(r schema.GroupVersionResource, k Key) (*source, held) {
	for _, src := range s.of(r) {
		if h := src.get(k); h.exists() {
			return src, h
		}
	}
	return nil, held{}
}

// Has reports whether an endpoint has an object. It does not unpack it.
func (s *Set) Has(r schema.GroupVersionResource, k Key) bool {
	src, _ := s.find(r, k)
	return src != nil
}

// Class returns the class of an object, or false if no endpoint has it. It does not unpack the object.
func (s *Set) Class(r schema.GroupVersionResource, k Key) (class string, ok bool) {
	src, h := s.find(r, k)
	return h.class, src != nil
}

// Version identifies an object with its content. It is zero if no endpoint has the object, which it does not unpack.
func (s *Set) Version(r schema.GroupVersionResource, k Key) uint64 {
	_, h := s.find(r, k)
	return h.version
}

// Classes returns the number of objects of a resource by class (see Options.Class). It does not unpack the objects.
func (s *Set) Classes(r schema.GroupVersionResource) map[string]int {
	out := map[string]int{}
	for _, src := range s.of(r) {
		src.each(func(_ Key, h held) { out[h.class]++ })
	}
	return out
}

// ClassesIn returns the number of objects of all resources in a logical cluster by class. It does not unpack them.
func (s *Set) ClassesIn(cluster string) map[string]int {
	out := map[string]int{}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, src := range s.sources {
		src.mu.RLock()
		src.objects.eachIn(cluster, func(_ Key, h held) { out[h.class]++ })
		src.mu.RUnlock()
	}
	return out
}

// List returns the objects of a resource, in the order of their keys.
func (s *Set) List(r schema.GroupVersionResource) []Object {
	type keyed struct {
		Key
		*source
		held
	}
	var found []keyed
	for _, src := range s.of(r) {
		src.each(func(k Key, h held) { found = append(found, keyed{k, src, h}) })
	}
	slices.SortFunc(found, func(a, b keyed) int { return a.compare(b.Key) })
	out := make([]Object, len(found))
	for i, o := range found {
		out[i] = s.object(o.source, o.held)
	}
	return out
}

// Keys returns the keys of the objects of a resource that are of a class, in no order. It does not unpack the objects.
func (s *Set) Keys(r schema.GroupVersionResource, class string) (out []Key) {
	for _, src := range s.of(r) {
		out = append(out, src.keys(func(h held) bool { return h.class == class })...)
	}
	return out
}

// KeysAt returns the keys of the objects of a source that are of a class, in no order. It does not unpack the objects.
func (s *Set) KeysAt(at Source, class string) []Key {
	s.mu.RLock()
	src := s.sources[at]
	s.mu.RUnlock()
	if src == nil {
		return nil
	}
	return src.keys(func(h held) bool { return h.class == class })
}

// In returns the objects of a resource in a namespace of a logical cluster, in no order. An empty namespace has what is
// cluster-scoped.
func (s *Set) In(r schema.GroupVersionResource, cluster, namespace string) (out []Object) {
	for _, src := range s.of(r) {
		for _, h := range src.in(cluster, namespace) {
			out = append(out, s.object(src, h))
		}
	}
	return out
}

// KeysIn returns the keys of the objects of a class in a namespace of a logical cluster, in no order. It does not
// unpack the objects.
func (s *Set) KeysIn(r schema.GroupVersionResource, cluster, namespace, class string) (out []Key) {
	for _, src := range s.of(r) {
		out = append(out, src.keysIn(cluster, namespace, class)...)
	}
	return out
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

// CompleteFor reports whether resources were listed and are watched at all of some endpoints: an object of them that
// the set does not have afterwards does not exist there. Call it before the objects are read. Complete does not know of
// sources that the caller wants and Update has not added yet.
func (s *Set) CompleteFor(endpoints []string, resources []schema.GroupVersionResource) bool {
	if len(resources) == 0 {
		return false // what is wanted is not known
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range endpoints {
		for _, r := range resources {
			at := Source{Endpoint: strings.TrimRight(e, "/"), Resource: r}
			if src := s.sources[at]; src == nil || !src.complete() {
				return false
			}
		}
	}
	return true
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

// held is an object as a set keeps it.
type held struct {
	// packed is the packed object. Empty: there is none.
	packed string
	// version is a hash of the UID and the resourceVersion.
	version uint64
	class   string
}

func (h held) exists() bool { return h.packed != "" }

// hold returns an object as the set keeps it. The object is used up. The fields that are not kept, managedFields, and
// the copy of the object that kubectl leaves in an annotation are dropped: they take much memory and are not read.
func (s *Set) hold(u *unstructured.Unstructured) held {
	h := held{version: maphash.Comparable(s.seed, [2]string{string(u.GetUID()), u.GetResourceVersion()})}
	if s.o.Class != nil {
		h.class = s.table.share(s.o.Class(u), false)
	}
	u.SetManagedFields(nil)
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	if s.o.Keep != nil {
		u.Object = only(u.Object, s.o.Keep)
	}
	h.packed = s.table.pack(u)
	return h
}

func only(object map[string]any, paths [][]string) map[string]any {
	out := map[string]any{}
	for _, path := range paths {
		v, ok, _ := unstructured.NestedFieldNoCopy(object, path...)
		if !ok {
			continue
		}
		at, last := out, len(path)-1
		for _, field := range path[:last] {
			next, ok := at[field].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[field] = next
			}
			at = next
		}
		at[path[last]] = v
	}
	return out
}

// store has objects by logical cluster, namespace and name: the objects of a namespace are read for each change in it.
type store map[string]map[string]map[string]held

func (s store) get(k Key) held { return s[k.Cluster][k.Namespace][k.Name] }

func (s store) set(k Key, h held) {
	if s[k.Cluster] == nil {
		s[k.Cluster] = map[string]map[string]held{}
	}
	if s[k.Cluster][k.Namespace] == nil {
		s[k.Cluster][k.Namespace] = map[string]held{}
	}
	s[k.Cluster][k.Namespace][k.Name] = h
}

func (s store) delete(k Key) {
	namespaces := s[k.Cluster]
	if delete(namespaces[k.Namespace], k.Name); len(namespaces[k.Namespace]) == 0 {
		delete(namespaces, k.Namespace)
	}
	if len(namespaces) == 0 {
		delete(s, k.Cluster)
	}
}

func (s store) each(f func(Key, held)) {
	for cluster := range s {
		s.eachIn(cluster, f)
	}
}

func (s store) eachIn(cluster string, f func(Key, held)) {
	for namespace, objects := range s[cluster] {
		for name, h := range objects {
			f(Key{cluster, namespace, name}, h)
		}
	}
}

// endpointSlices is the resource with the URLs of an APIExport's virtual workspaces, one for each shard with a binding
// (kcp: pkg/reconciler/apis/apiexportendpointsliceurls).
var endpointSlices = kcpapi.APIExportEndpointSlice.GVR()

// Follow calls changed with the URLs of an APIExportEndpointSlice, now and whenever they change, until the context
// ends. workspace is the URL of the slice's workspace. See FollowObject.
func Follow(ctx context.Context, o Options, workspace, name string, changed func(urls []string)) error {
	var last []string
	return FollowObject(ctx, o, workspace, endpointSlices, name, func(slice Object) {
		if urls := endpoints(slice.Unstructured); last == nil || !slices.Equal(urls, last) {
			last = urls
			changed(urls)
		}
	})
}

// FollowObject calls changed with a cluster-scoped object, now and whenever it changes, until the context ends. It is
// not called while the object does not exist or cannot be read: what was known last is assumed. server is the URL of
// its API server or workspace.
func FollowObject(ctx context.Context, o Options, server string, r schema.GroupVersionResource, name string,
	changed func(Object)) error {
	notify := poll.NewSignal()
	o.Path = ""
	o.LabelSelector = ""
	o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	o.Changed = func(schema.GroupVersionResource, Key) { notify.Send() }
	set, err := New(ctx, o)
	if err != nil {
		return err
	}
	defer set.Stop()
	if err := set.Update([]string{server}, []schema.GroupVersionResource{r}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-notify:
		}
		if all := set.List(r); len(all) == 1 {
			changed(all[0])
		}
	}
}

func endpoints(slice *unstructured.Unstructured) []string {
	all, _, _ := unstructured.NestedSlice(slice.Object, "status", "endpoints")
	out := []string{}
	for _, e := range all {
		if m, ok := e.(map[string]any); ok {
			if url, ok := m["url"].(string); ok {
				out = append(out, url)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

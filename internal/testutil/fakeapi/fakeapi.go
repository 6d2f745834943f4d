// Package fakeapi is an API server for tests, and a kcp: it stores objects of any kind, in logical clusters if the path
// has one. It lists, watches and patches them, counts generations, and waits for finalizers. It does not know schemas,
// so that a server-side apply is a merge, and lists are replaced. NewMemory returns one that is reached without a
// network, and that does more.
package fakeapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// T is the part of testing.T that the server needs.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Server is the server.
type Server struct {
	*httptest.Server

	mu      sync.Mutex
	version int
	objects map[key]*unstructured.Unstructured
	watches map[*stream]bool
	history []change
	// compacted is the version before which watches cannot start.
	compacted int
	// documents are answers to GET, by path and query.
	documents map[string]string
	refuse    func(*http.Request) (code int, message string)
	writes    []string
	// dropped are the fields of a status that schemas do not have, by path.
	dropped map[string][]string
	// memory is what a server of NewMemory does besides. Nil: nothing.
	memory *memory
}

// change is a change of an object, for watches that start later.
type change struct {
	version int
	key     key
	object  *unstructured.Unstructured
	kind    string
}

// key identifies an object. path is the path of its resource, without namespace and logical cluster:
// apis/apps/v1/deployments.
type key struct{ cluster, path, namespace, name string }

// stream is a watch.
type stream struct {
	request
	events chan map[string]any
}

// New starts a server, which ends with the test.
func New(t T) *Server {
	s := empty()
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		_ = s.Config.Close() // first, so that no client connects again: Close waits for all of them
		s.Close()
	})
	return s
}

func empty() *Server {
	return &Server{objects: map[key]*unstructured.Unstructured{}, watches: map[*stream]bool{}}
}

// Drop drops fields of the status of a resource, as a schema does that has not got them.
func (s *Server) Drop(path string, fields ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = map[string][]string{path: fields}
}

// Refuse makes requests fail for which f returns a code. Nil ends it. Watches that are open end.
func (s *Server) Refuse(f func(*http.Request) (code int, message string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
	s.endWatches(func(*stream) bool { return true })
}

// endWatches ends the watches that match.
func (s *Server) endWatches(match func(*stream) bool) {
	for w := range s.watches {
		if match(w) {
			close(w.events)
			delete(s.watches, w)
		}
	}
}

// Blind ends all watches so that they cannot be continued, as when an API server restarts, and does not answer lists of
// a resource until the returned function is called. It returns when a client has begun to list.
func (s *Server) Blind(path string) (see func()) {
	began, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.mu.Lock()
	s.version++
	s.compacted = s.version
	s.mu.Unlock()
	s.Refuse(func(r *http.Request) (int, string) {
		at, ok := parse(r)
		if ok && at.path == path && at.name == "" && r.Method == http.MethodGet && r.URL.Query().Get("watch") == "" {
			once.Do(func() { close(began) })
			select {
			case <-gate:
			case <-r.Context().Done(): // the test has failed, and the server stops
			}
		}
		return 0, ""
	})
	<-began
	return func() { close(gate) }
}

// Serve makes the server answer GET requests for a path, with its query, with a document: JSON, or YAML.
func (s *Server) Serve(path, document string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.documents == nil {
		s.documents = map[string]string{}
	}
	raw, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		panic(err)
	}
	s.documents[path] = string(raw)
}

// Writes returns the writing requests since the last call that were carried out: PATCH apps/v1/deployments/default/web.
func (s *Server) Writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.writes
	s.writes = nil
	return out
}

// Apply creates an object in a logical cluster, or merges the text into it, as another client would. An empty cluster
// is that of an API server.
func (s *Server) Apply(t T, cluster, path, text string) *unstructured.Unstructured {
	t.Helper()
	patch := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &patch); err != nil {
		t.Fatalf("%v", err)
	}
	u := unstructured.Unstructured{Object: patch}
	k := key{cluster, path, u.GetNamespace(), u.GetName()}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.merge(k, patch)
	if o.GetKind() == "" { // clients cannot decode it: their watches end, and begin again after seconds
		t.Fatalf("%s has no kind", k)
	}
	return o.DeepCopy()
}

// Get returns an object, or nil.
func (s *Server) Get(cluster, path, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[key{cluster, path, namespace, name}]; o != nil {
		return o.DeepCopy()
	}
	return nil
}

// Delete deletes an object as a client would.
func (s *Server) Delete(cluster, path, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key{cluster, path, namespace, name})
}

// Put stores an object as it is. It keeps the UID that it has, or that of the object which it replaces.
func (s *Server) Put(cluster, path string, o *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, kind := key{cluster, path, o.GetNamespace(), o.GetName()}, "ADDED"
	o = o.DeepCopy()
	if old := s.objects[k]; old != nil {
		kind = "MODIFIED"
		o.SetUID(cmp.Or(o.GetUID(), old.GetUID()))
	}
	o.SetUID(cmp.Or(o.GetUID(), s.newUID()))
	s.store(k, o, kind)
}

// Erase removes an object, with its finalizers.
func (s *Server) Erase(cluster, path, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := (key{cluster, path, namespace, name}); s.objects[k] != nil {
		s.end(k, s.objects[k].DeepCopy())
	}
}

// Names returns namespace/name of all objects of a resource, sorted.
func (s *Server) Names(cluster, path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []string{}
	for k := range s.objects {
		if k.cluster == cluster && k.path == path {
			out = append(out, k.namespace+"/"+k.name)
		}
	}
	slices.Sort(out)
	return out
}

// merge creates an object or merges a patch into it.
func (s *Server) merge(k key, patch map[string]any) *unstructured.Unstructured {
	old := s.objects[k]
	next := s.merged(k, patch)
	kind := "MODIFIED"
	if old == nil {
		kind = "ADDED"
	} else if reflect.DeepEqual(old.Object, next.Object) {
		return old
	}
	s.memory.keepFinalizers(old, next)
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 {
		return s.end(k, next)
	}
	s.store(k, next, kind)
	if old == nil && s.memory != nil && s.ownerless(next) {
		s.remove(k)
	}
	return next
}

// merged returns an object with a patch, which a dry run does not store.
func (s *Server) merged(k key, patch map[string]any) *unstructured.Unstructured {
	old := s.objects[k]
	next := &unstructured.Unstructured{Object: map[string]any{}}
	if old != nil {
		next = old.DeepCopy()
	}
	mergeInto(next.Object, patch)
	next.SetName(k.name)
	next.SetNamespace(k.namespace)
	if old != nil {
		if !reflect.DeepEqual(old.Object["spec"], next.Object["spec"]) {
			next.SetGeneration(old.GetGeneration() + 1)
		}
		next.SetResourceVersion(old.GetResourceVersion())
		return next
	}
	next.SetUID(s.newUID())
	next.SetGeneration(1)
	if k.cluster != "" {
		a := next.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		a["kcp.io/cluster"] = k.cluster
		next.SetAnnotations(a)
	}
	s.memory.created(k, next)
	return next
}

func (s *Server) store(k key, o *unstructured.Unstructured, kind string) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[k] = o
	s.notify(k, o, kind)
}

func (s *Server) end(k key, o *unstructured.Unstructured) *unstructured.Unstructured {
	delete(s.objects, k)
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.notify(k, o, "DELETED")
	s.release(o)
	s.collect(k, o)
	return o
}

// newUID returns a UID that no object of the server has had.
func (s *Server) newUID() types.UID {
	if s.memory == nil {
		return types.UID(fmt.Sprint("uid-", s.version))
	}
	s.memory.uids++
	return types.UID(fmt.Sprint("uid-", s.memory.name, "-", s.memory.uids))
}

func (s *Server) remove(k key) {
	o := s.objects[k]
	switch {
	case o == nil:
	case len(o.GetFinalizers()) == 0 || s.memory != nil && s.memory.cache:
		s.end(k, o.DeepCopy())
	case o.GetDeletionTimestamp() == nil:
		next := o.DeepCopy()
		_ = unstructured.SetNestedField(next.Object, time.Now().UTC().Format(time.RFC3339), "metadata", "deletionTimestamp")
		s.store(k, next, "MODIFIED")
	}
}

func (s *Server) notify(k key, o *unstructured.Unstructured, kind string) {
	s.remember(change{s.version, k, o, kind})
	for w := range s.watches {
		if w.matches(k, o) {
			w.events <- map[string]any{"type": kind, "object": o.Object}
		}
	}
	s.memory.tell(Event{Type: kind, Cluster: k.cluster, Path: k.path, Object: o})
}

// maxHistory is the number of changes that are kept for watches. An older watch cannot be continued.
const maxHistory = 20000

// remember keeps a change. Stored objects do not change.
func (s *Server) remember(c change) {
	if s.history = append(s.history, c); len(s.history) > maxHistory {
		rest := s.history[maxHistory/2:]
		s.compacted = max(s.compacted, s.history[maxHistory/2-1].version)
		s.history = slices.Clone(rest)
	}
}

// mergeInto applies a JSON merge patch.
func mergeInto(object, patch map[string]any) {
	for name, value := range patch {
		inner, isMap := value.(map[string]any)
		switch existing, wasMap := object[name].(map[string]any); {
		case value == nil:
			delete(object, name)
		case isMap && wasMap:
			mergeInto(existing, inner)
		case isMap:
			fresh := map[string]any{}
			mergeInto(fresh, inner)
			object[name] = fresh
		default:
			object[name] = value
		}
	}
}

// selected returns the sorted keys of the objects that a request selects.
func (s *Server) selected(r request) []key {
	var keys []key
	for k, o := range s.objects {
		if r.matches(k, o) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return keys
}

// list returns the objects that a request selects.
func (s *Server) list(r request) []any {
	keys := s.selected(r)
	items := make([]any, len(keys))
	for i, k := range keys {
		items[i] = s.objects[k].Object // stored objects do not change
	}
	return items
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

package fakeapi

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// The paths of resources that the server knows.
const (
	namespacesPath = "api/v1/namespaces"
	bindingsPath   = "apis/apis.kcp.io/v1alpha2/apibindings"
)

// Event is a change of an object. The object must not be changed.
type Event struct {
	Type, Cluster, Path string
	Object              *unstructured.Unstructured
}

// memory is what a server of NewMemory does besides: it collects garbage, ends what is in a namespace with it, knows
// which manager has applied a field, and shows in a virtual workspace what the APIBindings permit.
type memory struct {
	name string
	// uids is the number of UIDs that were given out. It does not go back.
	uids int
	// aliases are the logical clusters of paths.
	aliases map[string]string
	// holds are the resources whose objects are deleted in the foreground by Release.
	holds []string
	told  func(Event)
	// complete sets what controllers add to a new object.
	complete func(cluster, path string, o *unstructured.Unstructured)
	// guards are the preconditions that each deletion must have.
	guards []string
	// cache means that finalizers do not matter, and that lists end at their limit.
	cache bool
	// fields has the managers of the fields of an object.
	fields map[key]managers
	// accepted are the APIExports of the logical clusters that have bound them and accepted their claims.
	accepted map[string]map[string]bool
}

// NewMemory returns a server for Transport. The resources in holds are those whose objects own others that the server
// does not have: if they are deleted in the foreground, they wait for Release.
func NewMemory(name string, holds ...string) *Server {
	s := empty()
	s.Server = &httptest.Server{URL: "http://" + name}
	s.memory = &memory{
		name: name, holds: holds, aliases: map[string]string{}, fields: map[key]managers{}, accepted: map[string]map[string]bool{},
		told: func(Event) {}, complete: func(string, string, *unstructured.Unstructured) {},
	}
	return s
}

// Tell calls f with each change. It must not call the server.
func (s *Server) Tell(f func(Event)) { s.memory.told = f }

// Complete calls f with each object that a client creates, to add what controllers would. It must not call the server.
func (s *Server) Complete(f func(cluster, path string, o *unstructured.Unstructured)) {
	s.memory.complete = f
}

// Guard refuses deletions without these preconditions: uid, resourceVersion.
func (s *Server) Guard(preconditions ...string) { s.memory.guards = preconditions }

// Cache makes it the cache server of a kcp: a deletion needs a UID, and finalizers do not matter. Lists end at their
// limit.
func (s *Server) Cache() { s.memory.guards, s.memory.cache = []string{"uid"}, true }

// page returns a part of a list, and where it continues.
func (m *memory) page(r *http.Request, items []any) (part []any, next string) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if m == nil || !m.cache || limit == 0 {
		return items, ""
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	if from+limit >= len(items) {
		return items[min(from, len(items)):], ""
	}
	return items[from : from+limit], strconv.Itoa(from + limit)
}

// All calls f with the key of each object, sorted.
func (s *Server) All(f func(cluster, path, namespace, name string)) {
	s.mu.Lock()
	keys := s.sortedKeys()
	s.mu.Unlock()
	for _, k := range keys {
		f(k.cluster, k.path, k.namespace, k.name)
	}
}

// Alias makes a path stand for a logical cluster, as that of a workspace does.
func (s *Server) Alias(path, cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory.aliases[path] = cluster
	s.expire(func(w *stream) bool { return w.export == "" })
}

// Merge creates an object or merges a patch into it, as another client would.
func (s *Server) Merge(cluster, path, namespace, name string, patch map[string]any) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{cluster, path, namespace, name}
	s.memory.updated(k, patch, s.objects[k], "someone")
	return s.merge(k, patch)
}

// Patch merges a patch into an object, if it exists.
func (s *Server) Patch(cluster, path, namespace, name string, patch map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{cluster, path, namespace, name}
	if s.objects[k] != nil {
		s.memory.updated(k, patch, s.objects[k], "someone")
		s.merge(k, patch)
	}
}

// Objects returns the objects of a resource in all logical clusters. They must not be changed.
func (s *Server) Objects(path string) []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*unstructured.Unstructured
	for _, o := range s.list(request{key: key{cluster: anyCluster, path: path}, labels: everything, fields: everyField}) {
		out = append(out, &unstructured.Unstructured{Object: o.(map[string]any)})
	}
	return out
}

// Release ends the deletion of an object in the foreground.
func (s *Server) Release(cluster, path, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{cluster, path, namespace, name}
	if o := s.objects[k]; o != nil && o.GetDeletionTimestamp() != nil {
		next := o.DeepCopy()
		next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
		if len(next.GetFinalizers()) > 0 {
			s.store(k, next, "MODIFIED")
			return
		}
		s.end(k, next)
	}
}

// Snapshot is a backup of a server.
type Snapshot struct {
	objects map[key]*unstructured.Unstructured
	fields  map[key]managers
	version int
}

// Snapshot returns a backup.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &Snapshot{map[key]*unstructured.Unstructured{}, map[key]managers{}, s.version}
	for k, o := range s.objects {
		out.objects[k] = o
		out.fields[k] = s.memory.fields[k].clone()
	}
	return out
}

// Restore restores a backup: all watches end, and resource versions go back.
func (s *Server) Restore(from *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects, s.memory.fields, s.history, s.version = map[key]*unstructured.Unstructured{}, map[key]managers{}, nil, from.version
	for k, o := range from.objects {
		s.objects[k] = o
		s.memory.fields[k] = from.fields[k].clone()
	}
	s.compacted = s.version
	s.readBindings()
	s.endWatches(func(*stream) bool { return true })
}

func (m *memory) created(k key, o *unstructured.Unstructured) {
	if m != nil {
		o.SetCreationTimestamp(metav1.NewTime(time.Now()))
		m.complete(k.cluster, k.path, o)
	}
}

func (m *memory) held(k key) bool { return m != nil && slices.Contains(m.holds, k.path) }

func (m *memory) tell(e Event) {
	if m != nil {
		m.told(e)
	}
}

// keepFinalizers refuses new finalizers of an object that is deleted.
func (m *memory) keepFinalizers(old, next *unstructured.Unstructured) {
	if m == nil || old == nil || old.GetDeletionTimestamp() == nil {
		return
	}
	next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return !slices.Contains(old.GetFinalizers(), f) }))
}

// collect deletes what an object owns, or what is in a namespace, that is gone or waits for them.
func (s *Server) collect(k key, o *unstructured.Unstructured) {
	if s.memory == nil {
		return
	}
	for _, other := range s.sortedKeys() {
		at := s.objects[other]
		if at == nil || other == k {
			continue
		}
		inside := k.path == namespacesPath && other.cluster == k.cluster && other.namespace == k.name
		if owned(at, o.GetUID()) || inside {
			s.remove(other)
		}
	}
	if s.objects[k] == nil {
		delete(s.memory.fields, k)
		if k.path == bindingsPath {
			s.readBindings()
		}
	}
}

// deny returns why a write is refused: nothing is created in a namespace that is not there, or is being deleted. A
// server of New, whose tests do not create all namespaces, only knows that of those that were deleted.
func (s *Server) deny(r *http.Request, at request, body map[string]any) (code int, message string) {
	if r.Method == http.MethodGet || r.Method == http.MethodDelete || at.namespace == "" || at.cluster != "" {
		return 0, ""
	}
	namespace := key{path: namespacesPath, name: at.namespace}
	if s.memory == nil && !slices.ContainsFunc(s.history, func(c change) bool { return c.key == namespace && c.kind == "DELETED" }) {
		return 0, ""
	}
	name := at.name
	if r.Method == http.MethodPost {
		name, _, _ = unstructured.NestedString(body, "metadata", "name")
	}
	ns := s.objects[namespace]
	live := s.objects[key{"", at.path, at.namespace, name}]
	if live == nil && (ns == nil || ns.GetDeletionTimestamp() != nil) {
		return http.StatusNotFound, "namespaces " + at.namespace + " not found"
	}
	return 0, ""
}

// resolve sets the logical cluster of a path, and what a virtual workspace shows.
func (m *memory) resolve(at *request) {
	if m == nil {
		return
	}
	if cluster, ok := m.aliases[at.cluster]; ok {
		at.cluster = cluster
	}
	if at.export == "" {
		return
	}
	at.sees = func(k key, o *unstructured.Unstructured) bool {
		if k.path == bindingsPath { // kcp shows the owner of an APIExport its bindings without a claim, and the others with one
			export, _, _ := unstructured.NestedString(o.Object, "spec", "reference", "export", "name")
			return export == at.export || at.export == api.ExportWorkloads && m.accepted[k.cluster][at.export]
		}
		return m.accepted[k.cluster][at.export]
	}
}

// readBindings reads which logical clusters have accepted the claims of which APIExports. Where that changes, watches
// are expired.
func (s *Server) readBindings() {
	next := map[string]map[string]bool{}
	for k, o := range s.objects {
		if k.path != bindingsPath || !api.ClaimsApplied(o) || o.GetDeletionTimestamp() != nil {
			continue
		}
		if next[k.cluster] == nil {
			next[k.cluster] = map[string]bool{}
		}
		export, _, _ := unstructured.NestedString(o.Object, "spec", "reference", "export", "name")
		next[k.cluster][export] = true
	}
	changed := map[string]bool{}
	differ := func(a, b map[string]map[string]bool) {
		for cluster, all := range a {
			for export := range all {
				if !b[cluster][export] {
					changed[export] = true
				}
			}
		}
	}
	differ(next, s.memory.accepted)
	differ(s.memory.accepted, next)
	s.memory.accepted = next
	s.expire(func(w *stream) bool { return changed[w.export] })
}

// ReadBindings is to be called after a binding has changed.
func (s *Server) ReadBindings() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readBindings()
}

// expire ends watches so that they cannot be continued.
func (s *Server) expire(match func(*stream) bool) {
	for w := range s.watches {
		if match(w) {
			w.events <- expired()
		}
	}
	s.endWatches(match)
}

func (s *Server) sortedKeys() []key {
	all := make([]key, 0, len(s.objects))
	for k := range s.objects {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func (k key) String() string { return k.cluster + "|" + k.path + "|" + k.namespace + "/" + k.name }

// Object returns the JSON object in a YAML text.
func Object(text string) map[string]any {
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		panic(err)
	}
	return out
}

// SortedKeys returns the keys of a map.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

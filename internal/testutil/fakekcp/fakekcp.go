// Package fakekcp is a kcp for tests. It handles the requests of kcpctl over TLS, with the certificates of a setup.
// Connections stay in memory, so that it works in a synctest bubble.
package fakekcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
)

// The operations of a server, by their names in Script and Requests.
const (
	Readyz           = "readyz"
	ListShards       = "list shards"
	GetShard         = "get shards"
	PatchShard       = "apply shards"
	CreateWorkspace  = "create workspaces"
	PatchWorkspace   = "apply workspaces"
	GetWorkspace     = "get workspaces"
	DeleteWorkspaces = "delete workspaces"
	GetCluster       = "get logicalclusters"
	ListClusters     = "list logicalclusters"
	ApplyBinding     = "apply clusterrolebindings"
	GetExport        = "get apiexports"
	GetLease         = "get leases"
	PatchLease       = "apply leases"
)

// Request is a received request.
type Request struct {
	// Server is the name of the server that received it.
	Server, Op, Path string
	// User and Groups are from the client certificate.
	User   string
	Groups []string
}

// T is what a kcp needs of a test. A testing.TB implements it.
type T interface {
	// Errorf reports that a request is wrong.
	Errorf(format string, args ...any)
	// Cleanup calls a function at the end.
	Cleanup(func())
}

// Kcp is the shared state of the servers of a kcp installation. Unless a script says otherwise, it is ready, and so
// is every workspace.
type Kcp struct {
	t T

	mu         sync.Mutex
	servers    map[string]*server
	ended      bool // with the test: no more servers start
	shards     []kcp.Shard
	workspaces map[string]*unstructured.Unstructured
	bindings   map[string]*unstructured.Unstructured
	leaders    map[string]string // by server
	successors map[string]string
	renewals   map[string]int // by server; absent if the lease is not renewed
	restarts   map[string]int // by server
	next       map[string][]Answer
	always     map[string]Answer
	requests   []Request
	entries    []Entry // of the cache
	crds       []CRD
	endpoints  []Endpoint
	contents   *contents // nil unless it keeps objects in workspaces
	moves      *Moves    // nil unless it moves logical clusters
	uids       int
}

// New returns a kcp without servers.
func New(t T) *Kcp {
	k := &Kcp{
		t: t, servers: map[string]*server{}, next: map[string][]Answer{}, always: map[string]Answer{},
		workspaces: map[string]*unstructured.Unstructured{}, bindings: map[string]*unstructured.Unstructured{},
		leaders: map[string]string{}, successors: map[string]string{}, renewals: map[string]int{},
		restarts: map[string]int{},
	}
	if t != nil {
		t.Cleanup(k.end)
	}
	return k
}

// Script sets the responses to the next requests of an operation. "shard/alpha readyz" is an operation of one server,
// and "GET /clusters/root/api" a request for one path.
func (k *Kcp) Script(op string, answers ...Answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next[op] = append(k.next[op], answers...)
}

// Always sets the response to all requests of an operation after its script.
func (k *Kcp) Always(op string, a Answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.always[op] = a
}

// Never ends Always.
func (k *Kcp) Never(op string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.always, op)
}

// Restart starts the process of a server again.
func (k *Kcp) Restart(server string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restarts[server]++
}

// Register adds a shard, or replaces the shard with the same name, which keeps its labels.
func (k *Kcp) Register(s kcp.Shard) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := k.shard(s.Name); at >= 0 {
		s.Labels, s.OwnLabels = k.shards[at].Labels, k.shards[at].OwnLabels
	}
	k.shards = slices.DeleteFunc(k.shards, func(o kcp.Shard) bool { return o.Name == s.Name })
	k.shards = append(k.shards, s)
}

// Unregister removes a shard.
func (k *Kcp) Unregister(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shards = slices.DeleteFunc(k.shards, func(o kcp.Shard) bool { return o.Name == name })
}

// OwnShards makes each shard the owner of its Shard object: kcp denies writes to those in root (kcp#4371).
func (k *Kcp) OwnShards() {
	for _, verb := range []string{"create", "apply", "delete"} {
		k.Always(verb+" shards", Refuse(http.StatusForbidden, "Forbidden", "use the Admin workspace"))
	}
}

// Labels are those of a shard.
func (k *Kcp) Labels(shard string) map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.shards[k.shard(shard)].Labels)
}

// Shard is a shard, if it is registered.
func (k *Kcp) Shard(name string) (s kcp.Shard, registered bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.shard(name)
	if at < 0 {
		return kcp.Shard{}, false
	}
	return k.shards[at], true
}

// Label sets a label of a shard, as a user may.
func (k *Kcp) Label(shard, key, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.shards[k.shard(shard)]
	s.Labels = maps.Clone(s.Labels)
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[key] = value
}

// shard is the index of a shard, or -1.
func (k *Kcp) shard(name string) int {
	return slices.IndexFunc(k.shards, func(s kcp.Shard) bool { return s.Name == name })
}

func (k *Kcp) createShard(r *http.Request) Answer {
	o := k.read(r)
	if k.shard(o.GetName()) >= 0 {
		return Refuse(http.StatusConflict, "AlreadyExists", "shards "+o.GetName()+" already exists")
	}
	url, _, _ := unstructured.NestedString(o.Object, "spec", "baseURL")
	_, cordoned := o.GetAnnotations()[kcp.CordonAnnotation]
	k.shards = append(k.shards, kcp.Shard{Name: o.GetName(), BaseURL: url, Labels: o.GetLabels(), Cordoned: cordoned})
	return object(http.StatusCreated, o)
}

// patchShard changes the labels of a shard, and the list of those that kcpctl has set.
func (k *Kcp) patchShard(name string, r *http.Request) Answer {
	at := k.shard(name)
	if at < 0 {
		return Refuse(http.StatusNotFound, "NotFound", "shards "+name+" not found")
	}
	var patch struct {
		Metadata struct{ Labels, Annotations map[string]*string }
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		k.t.Errorf("fakekcp: body of %s %s: %v", r.Method, r.URL, err)
	}
	s := &k.shards[at]
	labels := map[string]string{}
	maps.Copy(labels, s.Labels)
	for key, value := range patch.Metadata.Labels {
		if value == nil {
			delete(labels, key)
		} else {
			labels[key] = *value
		}
	}
	s.Labels = labels
	if own, ok := patch.Metadata.Annotations[kcp.LabelsAnnotation]; ok && own == nil {
		s.OwnLabels = nil
	} else if ok {
		s.OwnLabels = strings.Split(*own, ",")
	}
	return Answer{http.StatusOK, map[string]any{"apiVersion": "core.kcp.io/v1alpha1", "kind": "Shard", "metadata": map[string]any{"name": name}}}
}

// AddWorkspace adds a workspace to root, such as one from a previous run.
func (k *Kcp) AddWorkspace(name string, labels map[string]string) {
	w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace"}}
	w.SetName(name)
	w.SetLabels(labels)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.workspaces[name] = w
}

// Workspaces returns the names of the workspaces below root.
func (k *Kcp) Workspaces() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := []string{}
	for name := range k.workspaces {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Workspace returns a workspace below root as it was requested, or nil.
func (k *Kcp) Workspace(name string) *unstructured.Unstructured {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.workspaces[name]
}

// Binding returns the ClusterRoleBinding of a workspace, such as root/name, or nil.
func (k *Kcp) Binding(name string) *unstructured.Unstructured {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bindings[name]
}

// Requests returns the requests of an operation so far, in order. An empty operation means all requests.
func (k *Kcp) Requests(op string) []Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(k.requests), func(r Request) bool { return op != "" && r.Op != op })
}

// serve handles a request to a server.
func (k *Kcp) serve(server string, w http.ResponseWriter, r *http.Request) {
	op := operation(r)
	who := r.TLS.PeerCertificates[0].Subject
	k.handle(Request{server, op, r.URL.Path, who.CommonName, who.Organization}, r).send(w, r)
}

func (k *Kcp) handle(q Request, r *http.Request) Answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests = append(k.requests, q)
	return k.answer(q.Server, q.Op, r)
}

// operation returns the operation of a request.
func operation(r *http.Request) string {
	if r.URL.Path == "/readyz" {
		return Readyz
	}
	if c, ok := cacheRequestOf(r); ok {
		return c.verb + " cached " + c.resource
	}
	parts := strings.Split(r.URL.Path, "/") // "", clusters, root, apis, group, version, resource, name
	if len(parts) > 8 && parts[6] == "namespaces" {
		parts = slices.Delete(parts, 6, 8)
	}
	if len(parts) < 7 || parts[1] != "clusters" || parts[3] != "apis" {
		return r.Method + " " + r.URL.Path
	}
	verb := map[string]string{"POST": "create", "DELETE": "delete", "PUT": "update", "PATCH": "apply", "GET": "list"}[r.Method]
	if verb == "list" && len(parts) > 7 {
		verb = "get"
	}
	if r.URL.Query().Has("watch") {
		verb = "watch"
	}
	return verb + " " + parts[6]
}

// answer returns the response of the script, or that of a healthy kcp. Requests that kcpctl never sends fail the test.
func (k *Kcp) answer(server, op string, r *http.Request) Answer {
	for _, key := range []string{server + " " + op, op, r.Method + " " + r.URL.Path} {
		if next := k.next[key]; len(next) > 0 {
			k.next[key] = next[1:]
			return next[0]
		}
		if a, ok := k.always[key]; ok {
			return a
		}
	}
	if a, ok := k.cached(op, r); ok {
		return a
	}
	if a, ok := k.sliced(server, op, r); ok {
		return a
	}
	if a, ok := k.moved(server, op, r); ok {
		return a
	}
	if a, ok := k.contained(r); ok {
		return a
	}
	workspace := path.Base(strings.Split(r.URL.Path+"///", "/")[2])
	name := path.Base(r.URL.Path)
	switch op {
	case Readyz:
		return Answer{http.StatusOK, "ok"}
	case "GET /metrics":
		return Answer{http.StatusOK, fmt.Sprintf("process_start_time_seconds %d\netcd_mvcc_db_total_size_in_bytes 1e+06\n",
			k.restarts[server])}
	case ListShards:
		return Shards(k.shards...)
	case GetShard:
		if at := k.shard(name); at >= 0 {
			return Shard(k.shards[at])
		}
		return Refuse(http.StatusNotFound, "NotFound", "shards "+name+" not found")
	case WatchCRDs:
		return k.watchCRDs()
	case UpdateStatus:
		return k.updateStatus(workspace, r)
	case "create shards":
		return k.createShard(r)
	case "delete shards":
		k.shards = slices.DeleteFunc(k.shards, func(o kcp.Shard) bool { return o.Name == name })
		return Answer{http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"}}
	case PatchShard:
		return k.patchShard(name, r)
	case CreateWorkspace:
		return k.createWorkspace(r)
	case GetWorkspace, PatchWorkspace:
		if k.workspaces[name] == nil {
			return Refuse(http.StatusNotFound, "NotFound", "workspaces "+name+" not found")
		}
		return object(http.StatusOK, k.workspaces[name])
	case DeleteWorkspaces:
		return k.deleteWorkspaces(r)
	case GetCluster:
		if _, child, _ := strings.Cut(workspace, ":"); k.workspaces[child] == nil {
			return Refuse(http.StatusForbidden, "Forbidden", "there is no workspace "+workspace)
		}
		return Answer{http.StatusOK, map[string]any{
			"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": name},
		}}
	case ListDeleted:
		return list("tenancy.kcp.io/v1alpha1", "WorkspaceList", []any{})
	case ListClusters:
		return list("core.kcp.io/v1alpha1", "LogicalClusterList", []any{})
	case ApplyBinding:
		return k.applyBinding(workspace, r)
	case GetLease, PatchLease:
		return k.lease(server, r)
	case GetExport:
		return Export(name, "identity-of-"+name)
	}
	if r.Method == http.MethodGet && name == "kcpctl-migration" {
		return Refuse(http.StatusNotFound, "NotFound", "nothing is moved")
	}
	k.t.Errorf("fakekcp: unexpected request %s %s", r.Method, r.URL)
	return Refuse(http.StatusNotFound, "NotFound", "unexpected")
}

func (k *Kcp) createWorkspace(r *http.Request) Answer {
	w := k.read(r)
	if k.workspaces[w.GetName()] != nil {
		return Refuse(http.StatusConflict, "AlreadyExists", w.GetName()+" already exists")
	}
	w.Object["status"] = map[string]any{"phase": "Ready"}
	k.workspaces[w.GetName()] = w
	return object(http.StatusCreated, w)
}

func (k *Kcp) deleteWorkspaces(r *http.Request) Answer {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil || selector.Empty() {
		k.t.Errorf("fakekcp: workspaces are to be deleted by %q: %v", selector, err)
		return Refuse(http.StatusBadRequest, "BadRequest", "which ones?")
	}
	for name, w := range k.workspaces {
		if selector.Matches(labels.Set(w.GetLabels())) {
			delete(k.workspaces, name)
		}
	}
	return list("tenancy.kcp.io/v1alpha1", "WorkspaceList", []any{})
}

func (k *Kcp) applyBinding(workspace string, r *http.Request) Answer {
	b := k.read(r)
	k.bindings[workspace+"/"+b.GetName()] = b
	return object(http.StatusOK, b)
}

// read decodes the object in a request.
func (k *Kcp) read(r *http.Request) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := json.NewDecoder(r.Body).Decode(&o.Object); err != nil {
		k.t.Errorf("fakekcp: body of %s %s: %v", r.Method, r.URL, err)
	}
	return o
}

// Package fakekcp is a kcp for tests. It handles the requests of kcpctl over TLS, with the certificates of a setup.
// Connections stay in memory, so that it works in a synctest bubble.
package fakekcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
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

// The paths of resources in the server that stores them.
const (
	shards     = resourcePath + "shards"
	workspaces = resourcePath + "workspaces"
	bindings   = resourcePath + "clusterrolebindings"
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

	// api stores the objects of the servers.
	api *fakeapi.Server

	mu         sync.Mutex
	servers    map[string]*server
	ended      bool              // with the test: no more servers start
	leaders    map[string]string // by server
	successors map[string]string
	renewals   map[string]int // by server; absent if the lease is not renewed
	restarts   map[string]int // by server
	next       map[string][]Answer
	always     map[string]Answer
	requests   []Request
	cache      map[string]*fakeapi.Server // by shard
	endpoints  []Endpoint
	contents   *contents // nil unless it keeps objects in workspaces
	moves      *Moves    // nil unless it moves logical clusters
}

// New returns a kcp without servers.
func New(t T) *Kcp {
	k := &Kcp{
		t: t, api: fakeapi.NewMemory("kcp"), cache: map[string]*fakeapi.Server{}, servers: map[string]*server{}, next: map[string][]Answer{}, always: map[string]Answer{},
		leaders: map[string]string{}, successors: map[string]string{}, renewals: map[string]int{},
		restarts: map[string]int{},
	}
	k.api.Complete(func(_, path string, o *unstructured.Unstructured) {
		if path == workspaces {
			o.Object["status"] = map[string]any{"phase": "Ready"}
		}
	})
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
	if old, registered := k.Shard(s.Name); registered {
		s.Labels, s.OwnLabels = old.Labels, old.OwnLabels
	}
	k.api.Put("root", shards, shardObject(s))
}

// Unregister removes a shard.
func (k *Kcp) Unregister(name string) { k.api.Delete("root", shards, "", name) }

// OwnShards makes each shard the owner of its Shard object: kcp denies writes to those in root (kcp#4371).
func (k *Kcp) OwnShards() {
	for _, verb := range []string{"create", "apply", "delete"} {
		k.Always(verb+" shards", Refuse(http.StatusForbidden, "Forbidden", "use the Admin workspace"))
	}
}

// Labels are those of a shard.
func (k *Kcp) Labels(shard string) map[string]string {
	s, _ := k.Shard(shard)
	return s.Labels
}

// Shard is a shard, if it is registered.
func (k *Kcp) Shard(name string) (s kcp.Shard, registered bool) {
	o := k.api.Get("root", shards, "", name)
	if o == nil {
		return kcp.Shard{}, false
	}
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object["spec"].(map[string]any), &s)
	s.Name, s.Labels = name, o.GetLabels()
	_, s.Cordoned = o.GetAnnotations()[kcp.CordonAnnotation]
	if own := o.GetAnnotations()[kcp.LabelsAnnotation]; own != "" {
		s.OwnLabels = strings.Split(own, ",")
	}
	return s, true
}

// Label sets a label of a shard, as a user may.
func (k *Kcp) Label(shard, key, value string) {
	k.api.Patch("root", shards, "", shard, map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
}

// AddWorkspace adds a workspace to root, such as one from a previous run.
func (k *Kcp) AddWorkspace(name string, labels map[string]string) {
	w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace"}}
	w.SetName(name)
	w.SetLabels(labels)
	k.api.Put("root", workspaces, w)
}

// Workspaces returns the names of the workspaces below root.
func (k *Kcp) Workspaces() []string {
	names := k.api.Names("root", workspaces)
	for i, name := range names {
		names[i] = strings.TrimPrefix(name, "/")
	}
	return names
}

// Workspace returns a workspace below root, or nil.
func (k *Kcp) Workspace(name string) *unstructured.Unstructured {
	return k.api.Get("root", workspaces, "", name)
}

// Binding returns the ClusterRoleBinding of a workspace, such as root/name, or nil.
func (k *Kcp) Binding(name string) *unstructured.Unstructured {
	cluster, name, _ := strings.Cut(name, "/")
	return k.api.Get(cluster, bindings, "", name)
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
	case ListShards, GetShard, PatchShard, "create shards", "delete shards", CreateWorkspace, GetWorkspace, PatchWorkspace, ApplyBinding:
		return stored(k.api, r)
	case WatchCRDs, UpdateStatus:
		return Answer{Body: k.api.ServeHTTP}
	case DeleteWorkspaces:
		return k.deleteWorkspaces(r)
	case GetCluster:
		if _, child, _ := strings.Cut(workspace, ":"); k.Workspace(child) == nil {
			return Refuse(http.StatusForbidden, "Forbidden", "there is no workspace "+workspace)
		}
		return Answer{http.StatusOK, map[string]any{
			"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": name},
		}}
	case ListDeleted:
		return list("tenancy.kcp.io/v1alpha1", "WorkspaceList", []any{})
	case ListClusters:
		return list("core.kcp.io/v1alpha1", "LogicalClusterList", []any{})
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

func (k *Kcp) deleteWorkspaces(r *http.Request) Answer {
	if r.URL.Query().Get("labelSelector") == "" {
		k.t.Errorf("fakekcp: all workspaces are to be deleted")
		return Refuse(http.StatusBadRequest, "BadRequest", "which ones?")
	}
	return stored(k.api, r)
}

// read decodes the object in a request.
func (k *Kcp) read(r *http.Request) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := json.NewDecoder(r.Body).Decode(&o.Object); err != nil {
		k.t.Errorf("fakekcp: body of %s %s: %v", r.Method, r.URL, err)
	}
	return o
}

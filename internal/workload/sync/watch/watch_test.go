package watch_test

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// shard is a server that lists and watches.
type shard struct {
	*httptest.Server
	path string

	mu      sync.Mutex
	objects map[string]map[string]any
	broken  bool
	// refuses means that the shard is too busy for requests, after which client-go continues a watch.
	refuses bool
	// version is the resourceVersion of lists. Empty is 1.
	version string
	// most is how many objects a list has at most. Zero is all.
	most int
	// one is the answer to requests for the object web.
	one map[string]any
	// asked are the queries of lists.
	asked   []string
	watches map[chan map[string]any]bool
}

func newShard(t *testing.T, path string) *shard {
	t.Helper()
	s := &shard{path: path, objects: map[string]map[string]any{}, watches: map[chan map[string]any]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func object(cluster, namespace, name, version string) map[string]any {
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{
			"name": name, "namespace": namespace, "resourceVersion": version, "uid": cluster + name,
			"annotations":   map[string]any{"kcp.io/cluster": cluster},
			"managedFields": []any{map[string]any{"manager": "kubectl"}},
		},
	}
}

func (s *shard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.broken {
		s.mu.Unlock()
		http.Error(w, "the disk is full", http.StatusInternalServerError)
		return
	}
	if s.refuses {
		s.mu.Unlock()
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/web") {
		one := s.one
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(one)
		return
	}
	if r.URL.Path != s.path {
		s.mu.Unlock()
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		body := s.page(r)
		s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(body)
		return
	}
	events := make(chan map[string]any, 10)
	s.watches[events] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches, events)
		s.mu.Unlock()
	}()
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			_ = json.NewEncoder(w).Encode(e)
			w.(http.Flusher).Flush()
		}
	}
}

// page returns a list, or a page of it. The shard is locked.
func (s *shard) page(r *http.Request) map[string]any {
	q := r.URL.Query()
	s.asked = append(s.asked, "limit="+q.Get("limit")+" resourceVersion="+q.Get("resourceVersion"))
	names := slices.Sorted(maps.Keys(s.objects))
	meta := map[string]any{"resourceVersion": cmp.Or(s.version, "1")}
	from, _ := strconv.Atoi(q.Get("continue"))
	names = names[from:]
	if s.most > 0 && len(names) > s.most {
		names = names[:s.most]
		meta["continue"] = strconv.Itoa(from + s.most)
	}
	items := []any{}
	for _, name := range names {
		items = append(items, s.objects[name])
	}
	return map[string]any{"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": meta, "items": items}
}

// event changes an object and tells the watches.
func (s *shard) event(kind string, o map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := unstructured.Unstructured{Object: o}
	if delete(s.objects, u.GetName()); kind != "DELETED" {
		s.objects[u.GetName()] = o
	}
	for w := range s.watches {
		w <- map[string]any{"type": kind, "object": o}
	}
}

// cut makes the server fail, or work again, and ends all watches.
func (s *shard) cut(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
	for w := range s.watches {
		close(w)
		delete(s.watches, w)
	}
}

func (s *shard) watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches) > 0
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 5*time.Millisecond, what)
}

// recorder records calls of Changed.
type recorder struct {
	mu   sync.Mutex
	keys []string
}

func (r *recorder) changed(_ schema.GroupVersionResource, k watch.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, k.String())
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.keys
	r.keys = nil
	return out
}

func newSet(t *testing.T, o watch.Options) *watch.Set {
	t.Helper()
	o.Config, o.Now = &rest.Config{}, time.Now
	s, err := watch.New(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

// names returns the names of the objects of a set, sorted.
func names(s *watch.Set) (out []string) {
	for _, o := range s.List(deployments) {
		out = append(out, o.GetName())
	}
	slices.Sort(out)
	return out
}

func TestListsComeInPages(t *testing.T) {
	alpha := newShard(t, path)
	alpha.most = 2
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		alpha.event("ADDED", object("1a", "default", name, "1"))
	}
	s := newSet(t, watch.Options{Path: watch.AllClusters})
	require.NoError(t, s.Update([]string{alpha.URL}, []schema.GroupVersionResource{deployments}))
	eventually(t, s.Complete, "it is listed")
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, names(s))
	page := "limit=500 resourceVersion="
	require.Equal(t, []string{page, page, page}, alpha.asked, "a version of 0 would make the server ignore the limit")
}

const path = "/clusters/*/apis/apps/v1/deployments"

func TestSetFollowsAllShards(t *testing.T) {
	alpha, beta := newShard(t, path), newShard(t, path)
	alpha.event("ADDED", object("1a", "default", "web", "1"))
	beta.event("ADDED", object("2b", "default", "web", "1"))
	var seen recorder
	s := newSet(t, watch.Options{Path: watch.AllClusters, Changed: seen.changed})
	require.False(t, s.Complete(), "nothing is known before the first update")
	require.NoError(t, s.Update([]string{alpha.URL, beta.URL + "/"}, []schema.GroupVersionResource{deployments}))
	eventually(t, s.Complete, "all shards are listed")
	require.ElementsMatch(t, []string{"1a|default/web", "2b|default/web"}, seen.take())

	o, ok := s.Get(deployments, watch.Key{Cluster: "2b", Namespace: "default", Name: "web"})
	require.True(t, ok)
	require.Equal(t, beta.URL, o.Endpoint, "without the slash of the update")
	require.Empty(t, o.GetManagedFields())
	require.Len(t, s.List(deployments), 2)

	eventually(t, alpha.watched, "alpha is watched")
	alpha.event("DELETED", object("1a", "default", "web", "2"))
	eventually(t, func() bool { return len(s.List(deployments)) == 1 }, "the deletion is seen")
	require.Equal(t, []string{"1a|default/web"}, seen.take())

	require.NoError(t, s.Update([]string{alpha.URL}, []schema.GroupVersionResource{deployments}))
	require.Empty(t, s.List(deployments), "objects of an endpoint that is gone are forgotten")
	require.Equal(t, []string{"2b|default/web"}, seen.take())
}

func TestFailureOfOneShard(t *testing.T) {
	alpha, beta := newShard(t, path), newShard(t, path)
	beta.cut(true)
	s := newSet(t, watch.Options{Path: watch.AllClusters})
	require.NoError(t, s.Update([]string{alpha.URL, beta.URL}, []schema.GroupVersionResource{deployments}))
	eventually(t, func() bool { return len(s.Failures()) == 1 && alpha.watched() }, "one shard fails, the other is watched")
	require.False(t, s.Listed())
	require.False(t, s.Complete())
	only := []schema.GroupVersionResource{deployments}
	require.True(t, s.CompleteFor([]string{alpha.URL + "/"}, only))
	require.False(t, s.CompleteFor([]string{alpha.URL, beta.URL}, only))
	require.False(t, s.CompleteFor([]string{alpha.URL}, nil), "nothing is not everything")
	require.Contains(t, s.Failures()[0].Error(), "watch deployments.apps at "+beta.URL)

	alpha.event("ADDED", object("1a", "default", "web", "1"))
	eventually(t, func() bool { return len(s.List(deployments)) == 1 }, "the other shard works")

	beta.event("ADDED", object("2b", "default", "web", "1"))
	beta.cut(false)
	eventually(t, s.Complete, "the shard is retried")
	require.True(t, s.CompleteFor([]string{alpha.URL, beta.URL}, only))
	require.False(t, s.CompleteFor([]string{alpha.URL}, append(only, schema.GroupVersionResource{Version: "v1", Resource: "services"})),
		"the next update adds it")
	require.Len(t, s.List(deployments), 2)
	require.Empty(t, s.Failures())
}

// A server with a restored backup does not show events up to the version from which a watch continues.
func TestAServerThatComesBackFromABackup(t *testing.T) {
	for name, tc := range map[string]struct {
		version string
		want    []string
	}{
		"a backup":  {"10", []string{"kept"}},
		"an outage": {"100", []string{"kept", "lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			alpha := newShard(t, path)
			alpha.version = "100"
			alpha.event("ADDED", object("1a", "default", "kept", "5"))
			s := newSet(t, watch.Options{Path: watch.AllClusters})
			require.NoError(t, s.Update([]string{alpha.URL}, []schema.GroupVersionResource{deployments}))
			eventually(t, func() bool { return s.Complete() && alpha.watched() }, "the shard is watched")
			alpha.event("ADDED", object("1a", "default", "lost", "100")) // client-go lists again after a watch without events
			eventually(t, func() bool { return len(names(s)) == 2 }, "it is seen")
			change := func(refuses bool, version string, lost bool) {
				alpha.mu.Lock()
				defer alpha.mu.Unlock()
				alpha.refuses, alpha.version = refuses, version
				if lost {
					delete(alpha.objects, "lost")
				}
			}
			change(true, "100", false)
			alpha.cut(false)
			eventually(t, func() bool { return len(s.Failures()) == 1 }, "the failure is known")
			change(false, tc.version, len(tc.want) == 1)
			eventually(t, func() bool { return s.Complete() && alpha.watched() }, "it is watched again")
			require.Equal(t, tc.want, names(s))
		})
	}
}

func TestListAgainReportsDifferences(t *testing.T) {
	alpha := newShard(t, path)
	for _, name := range []string{"kept", "changed", "removed"} {
		alpha.event("ADDED", object("1a", "default", name, "1"))
	}
	var seen recorder
	relisted := make(chan watch.Source, 1)
	s := newSet(t, watch.Options{Path: watch.AllClusters, Changed: seen.changed, Relisted: func(src watch.Source) { relisted <- src }})
	require.NoError(t, s.Update([]string{alpha.URL}, []schema.GroupVersionResource{deployments}))
	eventually(t, func() bool { return s.Complete() && alpha.watched() }, "the shard is watched")
	require.Empty(t, relisted)
	seen.take()

	alpha.cut(true)
	eventually(t, func() bool { return len(s.Failures()) == 1 }, "the failure is known")
	require.True(t, s.Listed())
	require.False(t, s.Complete(), "what is known may be old")
	require.Len(t, s.List(deployments), 3, "a failure removes nothing")
	alpha.event("MODIFIED", object("1a", "default", "changed", "2"))
	alpha.event("DELETED", object("1a", "default", "removed", "3"))
	alpha.mu.Lock()
	alpha.broken = false
	alpha.mu.Unlock()
	// The watch continues where it ended, and this server does not know what it missed: it says that the version is too
	// old.
	eventually(t, alpha.watched, "the shard is watched again")
	require.Empty(t, s.Failures())
	alpha.mu.Lock()
	alpha.broken = true
	for w := range alpha.watches {
		w <- map[string]any{"type": "ERROR", "object": map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old",
		}}
	}
	alpha.mu.Unlock()
	eventually(t, func() bool { return !s.Complete() }, "the watch has ended")
	alpha.cut(false)
	require.Equal(t, watch.Source{Endpoint: alpha.URL, Resource: deployments}, <-relisted)
	require.Len(t, s.List(deployments), 2)
	eventually(t, s.Complete, "the watch begins again")
	require.ElementsMatch(t, []string{"1a|default/changed", "1a|default/removed"}, seen.take())
}

func TestFollow(t *testing.T) {
	compute := newShard(t, "/clusters/root:compute/apis/apis.kcp.io/v1alpha1/apiexportendpointslices")
	slice := func(version string, urls ...string) map[string]any {
		all := []any{}
		for _, u := range urls {
			all = append(all, map[string]any{"url": u})
		}
		o := object("1c", "", "kubernetes", version)
		o["apiVersion"], o["kind"], o["status"] = "apis.kcp.io/v1alpha1", "APIExportEndpointSlice", map[string]any{"endpoints": all}
		return o
	}
	compute.event("ADDED", slice("1", "https://beta", "https://alpha"))
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan string, 10), make(chan error, 1)
	go func() {
		done <- watch.Follow(ctx, watch.Options{Config: &rest.Config{}, Now: time.Now}, compute.URL+"/clusters/root:compute", "kubernetes",
			func(urls []string) { got <- strings.Join(urls, " ") })
	}()
	require.Equal(t, "https://alpha https://beta", <-got)
	eventually(t, compute.watched, "the slice is watched")
	compute.event("MODIFIED", slice("2", "https://alpha", "https://beta"))
	compute.event("MODIFIED", slice("3", "https://gamma"))
	require.Equal(t, "https://gamma", <-got)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

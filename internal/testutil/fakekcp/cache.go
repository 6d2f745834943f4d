package fakekcp

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
)

// The operations of the cache. Those of an object include its resource, such as "delete cached apiexports".
const (
	ListDefinitions = "list cached customresourcedefinitions"
	ListCached      = "list cached "
	CreateCached    = "create cached "
	DeleteCached    = "delete cached "
)

// cacheDefinitions are the resources that the cache always serves. CachedResources publish others.
var cacheDefinitions = [][3]string{
	{"cache.kcp.io", "v1alpha1", "cachedresources"},
	{"apis.kcp.io", "v1alpha2", "apiexports"},
	{"apis.kcp.io", "v1alpha1", "apiresourceschemas"},
	{"core.kcp.io", "v1alpha1", "logicalclusters"},
	{"core.kcp.io", "v1alpha1", "shards"},
	{"rbac.authorization.k8s.io", "v1", "roles"},
}

// Entry is an object of a shard in the cache.
type Entry struct {
	Shard, Cluster, Resource, Namespace, Name string
	Finalizers                                []string
	// Annotations are those besides the shard and the logical cluster.
	Annotations map[string]string
	// Fields are its fields other than metadata.
	Fields map[string]any
}

// String returns "shard resource cluster:name".
func (e Entry) String() string {
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	return e.Shard + " " + e.Resource + " " + e.Cluster + ":" + name
}

// Put adds entries to the cache.
func (k *Kcp) Put(entries ...Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range entries {
		k.cacheOf(e.Shard).Put(e.Cluster, resourcePath+e.Resource, e.object())
	}
}

// cacheOf is the part of the cache that a shard writes.
func (k *Kcp) cacheOf(shard string) *fakeapi.Server {
	if shard == "*" {
		k.t.Errorf("fakekcp: a request for the entries of all shards in the cache")
	}
	if k.cache[shard] == nil {
		s := fakeapi.NewMemory("cache-" + shard)
		s.Cache()
		s.Complete(func(_, _ string, o *unstructured.Unstructured) {
			notes := o.GetAnnotations()
			notes["kcp.io/shard"] = shard
			o.SetAnnotations(notes)
		})
		k.cache[shard] = s
	}
	return k.cache[shard]
}

// inCache calls f with each entry of the cache.
func (k *Kcp) inCache(f func(Entry)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for shard, s := range k.cache {
		s.All(func(cluster, path, namespace, name string) {
			o := s.Get(cluster, path, namespace, name)
			e := Entry{
				Shard: shard, Cluster: cluster, Resource: strings.TrimPrefix(path, resourcePath), Namespace: namespace, Name: name,
				Finalizers: o.GetFinalizers(), Annotations: o.GetAnnotations(), Fields: o.Object,
			}
			delete(e.Fields, "metadata")
			f(e)
		})
	}
}

// InCache returns the sorted entries of the cache.
func (k *Kcp) InCache() []string {
	out := []string{}
	k.inCache(func(e Entry) { out = append(out, e.String()) })
	slices.Sort(out)
	return out
}

// Cached returns an entry of the cache by its name, as InCache has it.
func (k *Kcp) Cached(name string) (found Entry) {
	k.inCache(func(e Entry) {
		if e.String() == name {
			found = e
		}
	})
	if found.Name == "" {
		k.t.Errorf("fakekcp: %s is not in the cache", name)
	}
	return found
}

// cacheRequest is a parsed request to the cache.
type cacheRequest struct{ verb, shard, resource string }

// cacheRequestOf parses "/services/cache/shards/alpha/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports/name".
func cacheRequestOf(r *http.Request) (c cacheRequest, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/services/cache/shards/")
	parts := strings.Split(rest, "/") // alpha, clusters, *, apis, group, version, resource, name
	if len(parts) > 3 && parts[3] == "api" {
		parts = slices.Insert(parts, 4, "")
	}
	if len(parts) > 8 && parts[6] == "namespaces" {
		parts = slices.Delete(parts, 6, 8)
	}
	if !ok || len(parts) < 7 {
		return c, false
	}
	verb := map[string]string{"DELETE": "delete", "GET": "list", "POST": "create", "PUT": "update"}[r.Method]
	return cacheRequest{verb, parts[0], parts[6]}, true
}

// cached handles requests to the cache. Like the real one, it lists across logical clusters but deletes in one only,
// regardless of finalizers. Resources that CachedResources publish are served only while the CachedResources exist.
func (k *Kcp) cached(op string, r *http.Request) (Answer, bool) {
	c, ok := cacheRequestOf(r)
	switch {
	case !ok:
		return Answer{}, false
	case op == ListDefinitions:
		return definitions(cacheDefinitions), true
	case !k.servesCached(c.resource):
		return Refuse(http.StatusNotFound, "NotFound", c.resource+" are not served"), true
	}
	return stored(k.cacheOf(c.shard), r), true
}

// servesCached reports whether the cache serves a resource.
func (k *Kcp) servesCached(resource string) bool {
	plural, identity, published := strings.Cut(resource, ":")
	if !published {
		return slices.ContainsFunc(cacheDefinitions, func(d [3]string) bool { return d[2] == resource })
	}
	for _, s := range k.cache {
		for _, o := range s.Objects(resourcePath + "cachedresources") {
			hash, _, _ := unstructured.NestedString(o.Object, "status", "identityHash")
			of, _, _ := unstructured.NestedString(o.Object, "spec", "resource")
			if hash == identity && of == plural {
				return true
			}
		}
	}
	return false
}

func (e Entry) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Entry"}}
	for key, value := range e.Fields {
		o.Object[key] = value
	}
	o.SetName(e.Name)
	o.SetNamespace(e.Namespace)
	o.SetFinalizers(e.Finalizers)
	annotations := map[string]string{}
	maps.Copy(annotations, e.Annotations)
	annotations["kcp.io/shard"], annotations["kcp.io/cluster"] = e.Shard, e.Cluster
	o.SetAnnotations(annotations)
	return o
}

// definitions is a response with CustomResourceDefinitions.
func definitions(of [][3]string) Answer {
	items := []any{}
	for _, d := range of {
		items = append(items, map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": d[2] + "." + d[0]},
			"spec": map[string]any{
				"group": d[0], "names": map[string]any{"plural": d[2]},
				"versions": []any{
					map[string]any{"name": "v0", "served": false},
					map[string]any{"name": d[1], "served": true, "storage": true},
					map[string]any{"name": "v9", "served": true},
				},
			},
		})
	}
	return list("apiextensions.k8s.io/v1", "CustomResourceDefinitionList", items)
}

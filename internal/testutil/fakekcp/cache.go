package fakekcp

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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
	uid    int
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
		k.uids++
		e.uid = k.uids
		k.entries = append(k.entries, e)
	}
}

// InCache returns the sorted entries of the cache.
func (k *Kcp) InCache() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := []string{}
	for _, e := range k.entries {
		out = append(out, e.String())
	}
	slices.Sort(out)
	return out
}

// Cached returns an entry of the cache by its name, as InCache has it.
func (k *Kcp) Cached(name string) Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.entries, func(e Entry) bool { return e.String() == name })
	if i < 0 {
		k.t.Errorf("fakekcp: %s is not in the cache", name)
		return Entry{}
	}
	return k.entries[i]
}

// cacheRequest is a parsed request to the cache.
type cacheRequest struct{ verb, shard, cluster, resource, namespace, name string }

// cacheRequestOf parses "/services/cache/shards/alpha/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports/name".
func cacheRequestOf(r *http.Request) (c cacheRequest, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/services/cache/shards/")
	parts := strings.Split(rest, "/") // alpha, clusters, *, apis, group, version, resource, name
	if len(parts) > 3 && parts[3] == "api" {
		parts = slices.Insert(parts, 4, "")
	}
	if len(parts) > 8 && parts[6] == "namespaces" {
		c.namespace = parts[7]
		parts = slices.Delete(parts, 6, 8)
	}
	if !ok || len(parts) < 7 {
		return c, false
	}
	c.shard, c.cluster, c.resource = parts[0], parts[2], parts[6]
	c.verb = map[string]string{"DELETE": "delete", "GET": "list", "POST": "create", "PUT": "update"}[r.Method]
	if len(parts) > 7 {
		c.name = parts[7]
	}
	return c, true
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
	case c.verb == "list" && c.name == "":
		return k.listCached(c, r), true
	}
	var created *unstructured.Unstructured
	if c.verb == "create" {
		created = k.read(r)
		c.name = created.GetName()
	}
	i := slices.IndexFunc(k.entries, func(e Entry) bool {
		return e.Shard == c.shard && e.Cluster == c.cluster && e.Resource == c.resource && e.Namespace == c.namespace && e.Name == c.name
	})
	if created != nil && k.serves(c.resource) {
		return k.createCached(c, created, i >= 0), true
	}
	if i < 0 || !k.serves(c.resource) {
		return Refuse(http.StatusNotFound, "NotFound", c.name+" not found"), true
	}
	if c.verb == "update" {
		next := k.read(r)
		k.entries[i].Annotations = next.GetAnnotations()
		k.entries[i].Fields = maps.Clone(next.Object)
		delete(k.entries[i].Fields, "metadata")
	}
	if c.verb == "delete" {
		uid, _, _ := unstructured.NestedString(k.read(r).Object, "preconditions", "uid")
		if uid != strconv.Itoa(k.entries[i].uid) {
			return Refuse(http.StatusConflict, "Conflict", "uid "+uid+" is another object's"), true
		}
		k.entries = slices.Delete(k.entries, i, i+1)
		return Answer{http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"}}, true
	}
	return object(http.StatusOK, k.entries[i].object()), true
}

// createCached adds an object to the cache, unless it exists.
func (k *Kcp) createCached(c cacheRequest, o *unstructured.Unstructured, exists bool) Answer {
	if exists {
		return Refuse(http.StatusConflict, "AlreadyExists", c.name+" already exists")
	}
	k.uids++
	e := Entry{
		Shard: c.shard, Cluster: c.cluster, Resource: c.resource, Namespace: c.namespace, Name: c.name,
		Finalizers: o.GetFinalizers(), Annotations: o.GetAnnotations(), Fields: maps.Clone(o.Object), uid: k.uids,
	}
	delete(e.Fields, "metadata")
	k.entries = append(k.entries, e)
	return object(http.StatusCreated, e.object())
}

// serves reports whether the cache serves a resource.
func (k *Kcp) serves(resource string) bool {
	plural, identity, published := strings.Cut(resource, ":")
	if !published {
		return slices.ContainsFunc(cacheDefinitions, func(d [3]string) bool { return d[2] == resource })
	}
	return slices.ContainsFunc(k.entries, func(e Entry) bool {
		hash, _, _ := unstructured.NestedString(e.Fields, "status", "identityHash")
		of, _, _ := unstructured.NestedString(e.Fields, "spec", "resource")
		return e.Resource == "cachedresources" && hash == identity && of == plural
	})
}

func (k *Kcp) listCached(c cacheRequest, r *http.Request) Answer {
	if !k.serves(c.resource) {
		return Refuse(http.StatusNotFound, "NotFound", c.resource+" are not served")
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	items, meta, n := []any{}, map[string]any{}, 0
	for _, e := range k.entries {
		if e.Resource != c.resource || c.shard != "*" && e.Shard != c.shard || c.cluster != "*" && e.Cluster != c.cluster {
			continue
		}
		if n++; n <= from {
			continue
		}
		if limit > 0 && len(items) == limit {
			meta["continue"] = strconv.Itoa(from + limit)
			break
		}
		items = append(items, e.object().Object)
	}
	return Answer{http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "EntryList", "metadata": meta, "items": items}}
}

func (e Entry) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Entry"}}
	for key, value := range e.Fields {
		o.Object[key] = value
	}
	o.SetName(e.Name)
	o.SetNamespace(e.Namespace)
	o.SetUID(types.UID(strconv.Itoa(e.uid)))
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

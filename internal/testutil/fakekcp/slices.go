package fakekcp

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The operations of endpoint slices.
const (
	ListSystemDefinitions = "list customresourcedefinitions"
	ListSlices            = "list apiexportendpointslices"
	ApplySlice            = "apply apiexportendpointslices"
	// ListDeleted lists workspaces across logical clusters.
	ListDeleted = "list workspaces:identity-of-tenancy.kcp.io"
)

// sliceDefinitions are the kinds of endpoint slices that every shard serves.
var sliceDefinitions = [][3]string{
	{"apis.kcp.io", "v1alpha1", "apiexportendpointslices"},
	{"cache.kcp.io", "v1alpha1", "cachedresourceendpointslices"},
}

// Endpoint is a URL of a field manager in an endpoint slice.
type Endpoint struct {
	// Server is the name of the server with the slice.
	Server, Resource, Cluster, Slice string
	Manager, URL                     string
	// Updated means that it was written by an update, not by an apply.
	Updated bool
}

// String returns "server resource cluster:name manager URL".
func (e Endpoint) String() string {
	return strings.Join([]string{e.Server, e.Resource, e.Cluster + ":" + e.Slice, e.Manager, e.URL}, " ")
}

// PutEndpoints adds endpoints to slices.
func (k *Kcp) PutEndpoints(endpoints ...Endpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endpoints = append(k.endpoints, endpoints...)
}

// Endpoints returns the sorted endpoints of all slices.
func (k *Kcp) Endpoints() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := []string{}
	for _, e := range k.endpoints {
		out = append(out, e.String())
	}
	slices.Sort(out)
	return out
}

// sliced handles requests for endpoint slices. As in kcp, each manager owns the part of the status that it has applied.
func (k *Kcp) sliced(server, op string, r *http.Request) (Answer, bool) {
	if op == ListSystemDefinitions {
		return definitions(append(slices.Clone(sliceDefinitions), cacheDefinitions...)), true
	}
	verb, resource, _ := strings.Cut(op, " ")
	parts := strings.Split(r.URL.Path, "/") // "", clusters, root, apis, group, version, resource, name, status
	switch {
	case !slices.ContainsFunc(sliceDefinitions, func(d [3]string) bool { return d[2] == resource }):
		return Answer{}, false
	case verb == "list" && parts[2] == "*":
		return k.listSlices(server, resource), true
	case verb == "apply" && len(parts) == 9 && parts[8] == "status":
		return k.applySlice(server, resource, parts[2], parts[7], r), true
	}
	return Answer{}, false
}

func (k *Kcp) listSlices(server, resource string) Answer {
	return Slices(slices.DeleteFunc(slices.Clone(k.endpoints), func(e Endpoint) bool { return e.Server != server || e.Resource != resource })...)
}

// Slices is a response with the slices that have endpoints.
func Slices(endpoints ...Endpoint) Answer {
	type at struct{ cluster, name string }
	var order []at
	by := map[at][]Endpoint{}
	for _, e := range endpoints {
		key := at{e.Cluster, e.Slice}
		if by[key] == nil {
			order = append(order, key)
		}
		by[key] = append(by[key], e)
	}
	items := []any{}
	for _, key := range order {
		items = append(items, sliceOf(key.cluster, key.name, by[key]).Object)
	}
	return list("apis.kcp.io/v1alpha1", "APIExportEndpointSliceList", items)
}

func sliceOf(cluster, name string, endpoints []Endpoint) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice"}}
	o.SetName(name)
	o.SetAnnotations(map[string]string{"kcp.io/cluster": cluster})
	urls := []any{}
	var managed []metav1.ManagedFieldsEntry
	for _, e := range endpoints {
		urls = append(urls, map[string]any{"url": e.URL})
		key, _ := json.Marshal(map[string]string{"url": e.URL})
		fields, _ := json.Marshal(map[string]any{"f:status": map[string]any{"f:endpoints": map[string]any{
			"k:" + string(key): map[string]any{".": map[string]any{}, "f:url": map[string]any{}},
		}}})
		op := metav1.ManagedFieldsOperationApply
		if e.Updated {
			op = metav1.ManagedFieldsOperationUpdate
		}
		managed = append(managed, metav1.ManagedFieldsEntry{
			Manager: e.Manager, Operation: op, Subresource: "status", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: fields},
		})
	}
	o.SetManagedFields(managed)
	o.Object["status"] = map[string]any{"endpoints": urls}
	return o
}

// applySlice replaces the endpoints that a manager has applied.
func (k *Kcp) applySlice(server, resource, cluster, name string, r *http.Request) Answer {
	manager, o := r.URL.Query().Get("fieldManager"), k.read(r)
	of := func(e Endpoint) bool {
		return e.Server == server && e.Resource == resource && e.Cluster == cluster && e.Slice == name
	}
	if !slices.ContainsFunc(k.endpoints, of) {
		return Refuse(http.StatusNotFound, "NotFound", name+" not found")
	}
	k.endpoints = slices.DeleteFunc(k.endpoints, func(e Endpoint) bool { return of(e) && e.Manager == manager && !e.Updated })
	applied, _, _ := unstructured.NestedSlice(o.Object, "status", "endpoints")
	for _, a := range applied {
		url, _ := a.(map[string]any)["url"].(string)
		k.endpoints = append(k.endpoints, Endpoint{Server: server, Resource: resource, Cluster: cluster, Slice: name, Manager: manager, URL: url})
	}
	return object(http.StatusOK, o)
}

// DeletedWorkspaces is a response with workspaces in deletion, such as "root:team", with their annotations.
func DeletedWorkspaces(annotations map[string]map[string]string) Answer {
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(annotations)) {
		cluster, name, _ := strings.Cut(path, ":")
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace"}}
		o.SetName(name)
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
		all := map[string]string{"kcp.io/cluster": cluster}
		maps.Copy(all, annotations[path])
		o.SetAnnotations(all)
		items = append(items, o.Object)
	}
	return list("tenancy.kcp.io/v1alpha1", "WorkspaceList", items)
}

package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/kit/mergepatch"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// view has the objects of both sides. All parts of a syncer have the same one.
type view struct {
	Options
	scope
	// up has the leaves, at the virtual workspaces of the cluster's APIExport. down has what was made of them.
	up, down *watch.Set
	// bound has the APIBindings of the cluster's APIExport, at the same endpoints as up.
	bound *watch.Set
}

// scope has the Cluster, and the endpoints and the resources that are synced.
type scope struct {
	// cluster is the Cluster as it was seen last. Nil: not seen yet.
	cluster atomic.Pointer[api.Cluster]

	mu sync.Mutex
	// endpoints are the URLs of the virtual workspaces, and resources what is synced. Nil: not known yet.
	endpoints []string
	resources []schema.GroupVersionResource
	// unsynced are the other published APIs, whose schemas the cluster does not serve. Of their leaves, only deletions
	// are carried out.
	unsynced []schema.GroupVersionResource
}

// set sets what is synced, and reports whether that differs. Endpoints or resources that are nil are unchanged.
func (s *scope) set(endpoints []string, resources, unsynced []schema.GroupVersionResource) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if endpoints != nil {
		changed = !slices.Equal(endpoints, s.endpoints)
		s.endpoints = endpoints
	}
	if resources != nil {
		changed = changed || !slices.Equal(resources, s.resources)
		s.resources = resources
		s.unsynced = unsynced
	}
	return changed
}

// seen returns the Cluster, or an empty one and false before it is known.
func (s *scope) seen() (api.Cluster, bool) {
	if c := s.cluster.Load(); c != nil {
		return *c, true
	}
	return api.Cluster{}, false
}

// known returns what is synced, as far as it is known.
func (s *scope) known() (endpoints []string, resources []schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints, s.resources
}

// synced returns the synced resources, which are not changed.
func (s *scope) synced() []schema.GroupVersionResource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resources
}

// apis returns the resources of all published APIs, also of those that are not synced.
func (s *scope) apis() []schema.GroupVersionResource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.resources, s.unsynced)
}

func (v *view) physicalURL() string { return strings.TrimRight(v.Physical.Host, "/") }

// lists reports whether what is in the physical cluster is known. Otherwise the end of an object could be missed.
func (v *view) lists(r schema.GroupVersionResource) bool {
	at := v.physicalURL()
	return v.down.ListedAt(watch.Source{Endpoint: at, Resource: r}) &&
		v.down.ListedAt(watch.Source{Endpoint: at, Resource: namespaces})
}

// below returns a client for a resource of the physical cluster.
func (v *view) below(r schema.GroupVersionResource, namespace string) (dynamic.ResourceInterface, error) {
	return v.down.Resource(v.physicalURL(), "", namespace, r)
}

// read reads an object of the physical cluster. It returns nil if there is none.
func (v *view) read(ctx context.Context, r schema.GroupVersionResource,
	namespace, name string) (*unstructured.Unstructured, error) {
	client, err := v.below(r, namespace)
	if err != nil {
		return nil, err
	}
	live, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case isUnserved(err):
		return nil, fmt.Errorf("cluster %s does not serve version %s of %s, so whether %s/%s is gone there is not "+
			"known: serve that version again", v.Cluster, r.Version, r.GroupResource(), namespace, name)
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s/%s of cluster %s: %w", r.GroupResource(), namespace, name, v.Cluster, err)
	}
	return live, nil
}

// isUnserved reports whether an API server does not know a resource: its answer is not about an object.
func isUnserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// write applies an object to the physical cluster, and returns it as it is then.
func (v *view) write(ctx context.Context, r schema.GroupVersionResource,
	o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	client, err := v.below(r, o.GetNamespace())
	if err != nil {
		return nil, err
	}
	options := metav1.ApplyOptions{FieldManager: api.ManagerSyncer, Force: true}
	live, err := client.Apply(ctx, o.GetName(), o, options)
	if patch := unset(o, err); patch != nil && v.takeOver(ctx, r, o, patch) == nil {
		live, err = client.Apply(ctx, o.GetName(), o, options)
	}
	if err != nil {
		return nil, fmt.Errorf("apply %s %s/%s to cluster %s: %w", r.GroupResource(), o.GetNamespace(), o.GetName(),
			v.Cluster, err)
	}
	return live, nil
}

// unset returns a merge patch that removes the fields that the cluster refuses, and that an object does not have. Nil:
// there are none. The cluster has set them when the object was created, such as strategy.rollingUpdate of a Deployment:
// no one owns them, and they do not fit to what the user has changed beside them.
func unset(o *unstructured.Unstructured, err error) map[string]any {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var patch map[string]any
	for _, cause := range status.Status().Details.Causes {
		path := strings.Split(cause.Field, ".")
		last := len(path) - 1
		beside, ok, _ := unstructured.NestedMap(o.Object, path[:last]...)
		if _, has := beside[path[last]]; !ok || has || path[0] != "spec" || strings.Contains(cause.Field, "[") {
			continue
		}
		beside[path[last]] = nil
		if patch == nil {
			patch = map[string]any{}
		}
		_ = unstructured.SetNestedMap(patch, beside, path[:last]...)
	}
	return patch
}

// takeOver patches the object of the cluster that was made of the same leaf as another one. What it sets belongs to
// what the syncer applies.
func (v *view) takeOver(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured,
	patch map[string]any) error {
	live, err := v.read(ctx, r, o.GetNamespace(), o.GetName())
	if err != nil || live == nil || live.GetAnnotations()[annotationLeaf] != o.GetAnnotations()[annotationLeaf] {
		return errors.Join(err, errors.New("it is of another leaf"))
	}
	client, err := v.below(r, o.GetNamespace())
	if err != nil {
		return err
	}
	live, err = mergepatch.Send(ctx, client, api.ManagerSyncer, o.GetName(), live.GetUID(), patch)
	if err != nil {
		return err
	}
	managed, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(api.ManagerSyncer), api.ManagerSyncer)
	if err != nil || managed == nil {
		return err
	}
	_, err = client.Patch(ctx, o.GetName(), types.JSONPatchType, managed, metav1.PatchOptions{})
	return err
}

// delete deletes an object of the physical cluster, if it still is the one that was seen. What it owns goes with it.
func (v *view) delete(ctx context.Context, r schema.GroupVersionResource, seen *unstructured.Unstructured) error {
	if seen.GetDeletionTimestamp() != nil {
		return nil
	}
	client, err := v.below(r, seen.GetNamespace())
	if err != nil {
		return err
	}
	uid, policy := seen.GetUID(), kinds.Propagation(r.GroupResource())
	err = client.Delete(ctx, seen.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s/%s of cluster %s: %w", r.GroupResource(), seen.GetNamespace(),
			seen.GetName(), v.Cluster, err)
	}
	return nil
}

// present returns the object that a leaf has in the cluster, or nil. It runs there, whatever the cluster says to the
// present leaf.
func (v *view) present(i item, leaf watch.Object) *unstructured.Unstructured {
	at := watch.Key{Namespace: api.DownstreamNamespace(v.Setup, i.Cluster, i.Namespace), Name: name(leaf.Unstructured)}
	if live, ok := v.down.Get(i.GroupVersionResource, at); ok &&
		live.GetAnnotations()[annotationLeaf] == i.Key.String() {
		return live.Unstructured
	}
	return nil
}

func (v *view) complete(endpoints []string, resources []schema.GroupVersionResource) bool {
	return len(endpoints) > 0 && v.up.Complete() && v.bound.Complete() && v.down.Complete() &&
		v.up.CompleteFor(endpoints, resources) && v.down.CompleteFor([]string{v.physicalURL()}, resources)
}

// wanted reports whether an object has a leaf: the one it was made from, or, if the cluster has got another name since,
// the leaf of the same root.
func (v *view) wanted(r schema.GroupVersionResource, leaf watch.Key, object string) bool {
	if v.up.Has(r, leaf) {
		return true
	}
	leaf.Name = api.LeafName(object, v.Cluster)
	return v.up.Has(r, leaf)
}

// boundClaims returns the logical clusters in which kcp has applied the claims of the APIExport of the cluster. It
// shows the owner of an APIExport its bindings without a claim (kcp: pkg/virtual/apiexport/controllers/apireconciler).
func (v *view) boundClaims() map[string]bool {
	out := map[string]bool{}
	for _, b := range v.bound.List(kcpapi.APIBinding.GVR()) {
		if b.GetDeletionTimestamp() == nil && api.ClaimsApplied(b.Unstructured) {
			out[watch.KeyOf(b.Unstructured).Cluster] = true
		}
	}
	return out
}

func (v *view) usedNamespaces(apis []schema.GroupVersionResource) map[string]bool {
	used := map[string]bool{}
	for _, r := range apis {
		for _, k := range v.up.Keys(r, "") {
			used[api.DownstreamNamespace(v.Setup, k.Cluster, k.Namespace)] = true
		}
	}
	return used
}

type space struct{ cluster, namespace string }

// spaceIndex finds the leaves of an event of the physical cluster.
type spaceIndex struct {
	*view

	mu sync.Mutex
	// known are the namespaces of logical clusters, by namespace of the physical cluster.
	known map[string]space
}

// learn remembers for which namespace a namespace of the physical cluster stands. A hash has no way back.
func (s *spaceIndex) learn(leaf watch.Key) {
	at := api.DownstreamNamespace(s.Setup, leaf.Cluster, leaf.Namespace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.known[at]; !known {
		s.known[at] = space{leaf.Cluster, leaf.Namespace}
	}
}

// spaceOf returns the namespace that a namespace of the physical cluster stands for, if it is known.
func (s *spaceIndex) spaceOf(namespace string) (space, bool) {
	if ns, ok := s.down.Get(namespaces, watch.Key{Name: namespace}); ok {
		return space{ns.GetLabels()[api.LabelWorkspace], ns.GetLabels()[api.LabelNamespace]}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.known[namespace]
	return of, ok
}

// forget forgets the namespaces without leaves. A leaf that comes now is learned afterwards, because the set has it
// before learn is called.
func (s *spaceIndex) forget() {
	apis := s.apis()
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.usedNamespaces(apis)
	maps.DeleteFunc(s.known, func(namespace string, _ space) bool { return !used[namespace] })
}

// leavesIn returns the keys of the leaves that have their objects in a namespace of the physical cluster.
func (s *spaceIndex) leavesIn(r schema.GroupVersionResource, namespace string) []watch.Key {
	of, ok := s.spaceOf(namespace)
	if !ok {
		return nil
	}
	return s.up.KeysIn(r, of.cluster, of.namespace, "")
}

// leavesOf returns the keys of the leaves that an object of the physical cluster can stand for: by its annotation, and,
// because a user can have changed that, or because the object is gone, by its namespace and its name.
func (s *spaceIndex) leavesOf(r schema.GroupVersionResource, k watch.Key) []watch.Key {
	var all []watch.Key
	if live, ok := s.down.Get(r, k); ok {
		if leaf, ok := parseLeaf(live.GetAnnotations()[annotationLeaf]); ok {
			all = append(all, leaf)
		}
	}
	of, ok := s.spaceOf(k.Namespace)
	if !ok {
		return all
	}
	leaf := watch.Key{Cluster: of.cluster, Namespace: of.namespace}
	for _, leaf.Name = range []string{k.Name, api.LeafName(k.Name, s.Cluster)} {
		if s.up.Has(r, leaf) && !slices.Contains(all, leaf) {
			all = append(all, leaf)
		}
	}
	return all
}

func (s *spaceIndex) clusters() map[string]bool {
	out := map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.known {
		out[at.cluster] = true
	}
	return out
}

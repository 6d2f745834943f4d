package syncer

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// orphan is an object of the physical cluster, or a namespace there, that no leaf needs.
type orphan struct {
	schema.GroupVersionResource
	uid types.UID
}

// changedNamespace syncs the leaves of a namespace of the physical cluster that is gone.
func (s *syncer) changedNamespace(k watch.Key) {
	if _, exists := s.down.Get(namespaces, k); exists {
		return
	}
	s.mu.Lock()
	resources := s.resources
	s.mu.Unlock()
	for _, r := range resources {
		for _, leaf := range s.leavesIn(r, k.Name) {
			s.queue.Add(item{r, leaf})
		}
	}
}

// leavesIn returns the keys of the leaves that have their objects in a namespace of the physical cluster.
func (s *syncer) leavesIn(r schema.GroupVersionResource, namespace string) []watch.Key {
	var all []watch.Key
	for _, leaf := range s.up.List(r) {
		if k := watch.KeyOf(leaf.Unstructured); api.DownstreamNamespace(s.Setup, k.Cluster, k.Namespace) == namespace {
			all = append(all, k)
		}
	}
	return all
}

// leavesOf returns the keys of the leaves that an object of the physical cluster can stand for: by its annotation, and, because a user
// can have changed that, or because the object is gone, by its namespace and its name.
func (s *syncer) leavesOf(r schema.GroupVersionResource, k watch.Key) []watch.Key {
	var all []watch.Key
	if live, ok := s.down.Get(r, k); ok {
		if leaf, ok := parseLeaf(live.GetAnnotations()[annotationLeaf]); ok {
			all = append(all, leaf)
		}
	}
	ns, ok := s.down.Get(namespaces, watch.Key{Name: k.Namespace})
	if !ok {
		return append(all, s.leavesIn(r, k.Namespace)...) // it is gone, too
	}
	leaf := watch.Key{Cluster: ns.GetLabels()[api.LabelWorkspace], Namespace: ns.GetLabels()[api.LabelNamespace]}
	for _, leaf.Name = range []string{k.Name, api.LeafName(k.Name, s.Cluster)} {
		if _, ok := s.up.Get(r, leaf); ok && !slices.Contains(all, leaf) {
			all = append(all, leaf)
		}
	}
	return all
}

// parseLeaf parses a key as Key.String writes it.
func parseLeaf(text string) (watch.Key, bool) {
	cluster, rest, ok := strings.Cut(text, "|")
	namespace, name, ok2 := strings.Cut(rest, "/")
	return watch.Key{Cluster: cluster, Namespace: namespace, Name: name}, ok && ok2
}

// sweep removes orphans: objects that were orphans at the last look already. It removes nothing if anything could not be listed,
// on either side, because a leaf that is not known may exist.
func (s *syncer) sweep(ctx context.Context) {
	defer s.begin("the look for orphans")()
	defer s.report()
	s.mu.Lock()
	endpoints, resources, before, release := s.endpoints, s.resources, s.suspects, s.release
	s.mu.Unlock()
	if len(endpoints) == 0 || !s.up.Complete() || !s.bound.Complete() || !s.down.Complete() {
		return
	}
	found, total := s.find(resources)
	kept, message := s.hold(found, total, release)
	suspects := map[orphan]bool{}
	for o, live := range found {
		if suspects[o] = true; !before[o] || kept[o] {
			continue
		}
		klog.FromContext(ctx).Info("Removing an object without a leaf", "resource", o.GroupResource(), "namespace", live.GetNamespace(), "name", live.GetName())
		if err := s.collect(ctx, o, live); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove an object without a leaf")
		}
	}
	s.mu.Lock()
	s.suspects, s.orphans = suspects, message
	s.mu.Unlock()
}

// collect deletes an orphan. A namespace stays while it has volumes.
func (s *syncer) collect(ctx context.Context, o orphan, live *unstructured.Unstructured) error {
	if o.GroupVersionResource == namespaces {
		if keep, err := s.hasVolumes(ctx, live); keep || err != nil {
			return err
		}
	}
	return s.delete(ctx, o.GroupVersionResource, live)
}

// find returns the orphans, and the number of all objects. A namespace is an orphan if it has no leaf and no object, of
// any resource that it has ever had objects of.
func (s *syncer) find(resources []schema.GroupVersionResource) (found map[orphan]*unstructured.Unstructured, total int) {
	found = map[orphan]*unstructured.Unstructured{}
	used := map[string]bool{}
	for _, r := range resources {
		for _, leaf := range s.up.List(r) {
			k := watch.KeyOf(leaf.Unstructured)
			used[api.DownstreamNamespace(s.Setup, k.Cluster, k.Namespace)] = true
		}
		for _, live := range s.down.List(r) {
			total++
			used[live.GetNamespace()] = true
			leaf, ok := parseLeaf(live.GetAnnotations()[annotationLeaf])
			if !ok {
				continue // not ours, though it has our labels
			}
			if _, exists := s.up.Get(r, leaf); !exists {
				found[orphan{r, live.GetUID()}] = live.Unstructured
			}
		}
	}
	for _, ns := range s.down.List(namespaces) {
		if !used[ns.GetName()] && ns.GetDeletionTimestamp() == nil && removable(ns.Unstructured, resources) {
			found[orphan{namespaces, ns.GetUID()}] = ns.Unstructured
		}
	}
	return found, total
}

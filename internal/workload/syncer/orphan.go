package syncer

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// The brake: orphans are not removed if there are this many at once, and more than this share of all objects. Such a number is more
// likely a mistake elsewhere, such as a restored backup of kcp (kcp issue 2041: a syncer deleted namespaces when it started).
const (
	manyOrphans        = 5
	manyOrphansPercent = 20
)

// orphan is an object of the physical cluster, or a namespace there, that no leaf needs.
type orphan struct {
	schema.GroupVersionResource
	uid types.UID
}

// leafOf returns the key of the leaf that an object of the physical cluster stands for.
func (s *syncer) leafOf(r schema.GroupVersionResource, k watch.Key) (watch.Key, bool) {
	if live, ok := s.down.Get(r, k); ok {
		return parseLeaf(live.GetAnnotations()[annotationLeaf])
	}
	// The object is gone. Its namespace says where its leaf is, and the leaf has its name, or is a leaf of a root with its name.
	ns, ok := s.down.Get(namespaces, watch.Key{Name: k.Namespace})
	if !ok {
		return watch.Key{}, false
	}
	leaf := watch.Key{Cluster: ns.GetLabels()[api.LabelWorkspace], Namespace: ns.GetLabels()[api.LabelNamespace], Name: api.LeafName(k.Name, s.Cluster)}
	if _, ok := s.up.Get(r, leaf); !ok {
		leaf.Name = k.Name
	}
	return leaf, true
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
	defer s.report()
	s.mu.Lock()
	endpoints, resources, before := s.endpoints, s.resources, s.suspects
	s.mu.Unlock()
	if len(endpoints) == 0 || !s.up.Complete() || !s.down.Complete() {
		return
	}
	found, total := s.find(resources)
	message := brake(len(found), total, s.Cluster)
	suspects := map[orphan]bool{}
	for o, live := range found {
		if suspects[o] = true; !before[o] || message != "" {
			continue
		}
		klog.FromContext(ctx).Info("Removing an object without a leaf", "resource", o.GroupResource(), "namespace", live.GetNamespace(), "name", live.GetName())
		if err := s.delete(ctx, o.GroupVersionResource, live); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove an object without a leaf")
		}
	}
	s.mu.Lock()
	s.suspects, s.orphans = suspects, message
	s.mu.Unlock()
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

// brake returns why orphans are not removed, or nothing if they are.
func brake(orphans, total int, cluster string) string {
	if orphans < manyOrphans || orphans*100 <= total*manyOrphansPercent {
		return ""
	}
	return fmt.Sprintf("%d of %d objects in cluster %s have no object in kcp: they are not removed, because that may be a mistake. "+
		"If they are to be removed, delete the namespaces with the label %s in the cluster", orphans, total, cluster, api.LabelSetup)
}

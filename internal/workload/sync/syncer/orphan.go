package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kcpapi"
	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// orphan is an object of the physical cluster without a leaf, or a namespace there without any.
type orphan struct {
	schema.GroupVersionResource
	live *unstructured.Unstructured
}

// tokenLength is the number of characters with which a user releases orphans.
const tokenLength = 8

// changedNamespace syncs the leaves of a namespace of the physical cluster that is gone.
func (s *syncer) changedNamespace(k watch.Key) {
	if _, exists := s.down.Get(namespaces, k); exists {
		return
	}
	for _, r := range s.synced() {
		for _, leaf := range s.leavesIn(r, k.Name) {
			s.queue.Add(item{r, leaf})
		}
	}
}

// space is a namespace of a logical cluster.
type space struct{ cluster, namespace string }

// learn remembers for which namespace a namespace of the physical cluster stands. A hash has no way back.
func (s *syncer) learn(leaf watch.Key) {
	at := api.DownstreamNamespace(s.Setup, leaf.Cluster, leaf.Namespace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.spaces[at]; !known {
		s.spaces[at] = space{leaf.Cluster, leaf.Namespace}
	}
}

// spaceOf returns the namespace that a namespace of the physical cluster stands for, if it is known.
func (s *syncer) spaceOf(namespace string) (space, bool) {
	if ns, ok := s.down.Get(namespaces, watch.Key{Name: namespace}); ok {
		return space{ns.GetLabels()[api.LabelWorkspace], ns.GetLabels()[api.LabelNamespace]}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.spaces[namespace]
	return of, ok
}

// forgetSpaces forgets the namespaces without leaves. A leaf that comes now is learned afterwards, because the set has
// it before learn is called.
func (s *syncer) forgetSpaces() {
	apis := s.apis()
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.usedNamespaces(apis)
	maps.DeleteFunc(s.spaces, func(namespace string, _ space) bool { return !used[namespace] })
}

// usedNamespaces returns the namespaces of the physical cluster that have a leaf.
func (s *syncer) usedNamespaces(apis []schema.GroupVersionResource) map[string]bool {
	used := map[string]bool{}
	for _, r := range apis {
		for _, k := range s.up.Keys(r, "") {
			used[api.DownstreamNamespace(s.Setup, k.Cluster, k.Namespace)] = true
		}
	}
	return used
}

// leavesIn returns the keys of the leaves that have their objects in a namespace of the physical cluster.
func (s *syncer) leavesIn(r schema.GroupVersionResource, namespace string) []watch.Key {
	var all []watch.Key
	if of, ok := s.spaceOf(namespace); ok {
		for _, leaf := range s.up.In(r, of.cluster, of.namespace) {
			all = append(all, watch.KeyOf(leaf.Unstructured))
		}
	}
	return all
}

// leavesOf returns the keys of the leaves that an object of the physical cluster can stand for: by its annotation, and,
// because a user can have changed that, or because the object is gone, by its namespace and its name.
func (s *syncer) leavesOf(r schema.GroupVersionResource, k watch.Key) []watch.Key {
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

// sweep counts the orphans, and removes them if a user has released exactly these. Leaves end with a finalizer, so a
// missing leaf does not mean that its user has deleted it: kcp can be restored from a backup. Nothing is counted if
// anything could not be listed, on either side, because a leaf that is not known may exist.
func (s *syncer) sweep(ctx context.Context) {
	defer s.begin("the search for orphans")()
	defer s.report()
	s.forgetSpaces()
	s.mu.Lock()
	endpoints := s.endpoints
	resources := s.resources
	release := s.release
	s.mu.Unlock()
	if s.blocked() != nil || !s.complete(endpoints, resources) {
		return
	}
	found := s.findOrphans(resources)
	if !s.complete(endpoints, resources) {
		return // a watch has ended, or is no longer wanted, and what it had could not be found
	}
	if len(found) > 0 && release == tokenOf(found) {
		found = s.removeReleased(ctx, found)
	}
	s.mu.Lock()
	s.orphans = len(found)
	s.orphanMessage = s.describe(found)
	s.mu.Unlock()
}

// complete reports whether everything that the syncer watches is known.
func (s *syncer) complete(endpoints []string, resources []schema.GroupVersionResource) bool {
	return len(endpoints) > 0 && s.up.Complete() && s.bound.Complete() && s.down.Complete() &&
		s.up.CompleteFor(endpoints, resources) && s.down.CompleteFor([]string{s.physicalURL()}, resources)
}

// findOrphans returns the orphans. A namespace is one if it has no leaf, of any resource that it has ever had objects
// of.
func (s *syncer) findOrphans(resources []schema.GroupVersionResource) (found []orphan) {
	used := s.usedNamespaces(s.apis())
	for _, r := range resources {
		for _, live := range s.down.List(r) {
			// What has our labels and names no leaf is not ours.
			leaf, ok := parseLeaf(live.GetAnnotations()[annotationLeaf])
			if ok && live.GetDeletionTimestamp() == nil && !s.wanted(r, leaf, live.GetName()) {
				found = append(found, orphan{r, live.Unstructured})
			}
		}
	}
	for _, ns := range s.down.List(namespaces) {
		if !used[ns.GetName()] && ns.GetDeletionTimestamp() == nil && removable(ns.Unstructured, resources) {
			found = append(found, orphan{namespaces, ns.Unstructured})
		}
	}
	return found
}

// removeReleased removes orphans, and returns those that could not be removed. They are shown again.
func (s *syncer) removeReleased(ctx context.Context, all []orphan) (failed []orphan) {
	log := klog.FromContext(ctx)
	for _, o := range all {
		log.Info("Removing an object without a leaf, which a user has released", "resource", o.GroupResource(),
			"namespace", o.live.GetNamespace(), "name", o.live.GetName())
		if err := s.delete(ctx, o.GroupVersionResource, o.live); err != nil {
			log.Error(err, "Cannot remove an object without a leaf")
			failed = append(failed, o)
		}
	}
	return failed
}

// describe returns the message about orphans, or "" if there are none.
func (s *syncer) describe(all []orphan) string {
	if len(all) == 0 {
		return ""
	}
	bound := s.boundClaims()
	var data, unbound, empty int
	for _, o := range all {
		k, _ := kinds.OfResource(o.GroupResource())
		leaf, isLeaf := parseLeaf(o.live.GetAnnotations()[annotationLeaf])
		switch {
		case o.GroupVersionResource == namespaces:
			empty++
		case k.Data != kinds.NoData: // objects in memory have no spec, so any StatefulSet may have volumes
			data++
		case isLeaf && !bound[leaf.Cluster]:
			unbound++
		}
	}
	message := fmt.Sprintf("%d objects in cluster %s have no object in kcp", len(all), s.Cluster)
	if data > 0 {
		message += fmt.Sprintf(", %d of them have data", data)
	}
	if unbound > 0 {
		message += fmt.Sprintf(", %d of them are in workspaces that do not exist or have no APIBinding to APIExport %s",
			unbound, api.ExportCluster(s.Cluster))
	}
	if empty > 0 {
		message += fmt.Sprintf(", %d of them are namespaces, which would be removed with everything in them", empty)
	}
	return message + fmt.Sprintf(": they are not removed, because that may be a mistake. "+
		"List them with kubectl get %s -A -l %s=%s in the cluster. "+
		"To remove them, annotate the Cluster in kcp: kubectl annotate --overwrite clusters.%s %s %s=%s",
		resourcesOf(all), api.LabelSetup, s.Setup, api.Group, s.Cluster, api.AnnotationRemoveOrphans, tokenOf(all))
}

// tokenOf returns what identifies a set of orphans.
func tokenOf(all []orphan) string {
	var uids []string
	for _, o := range all {
		uids = append(uids, string(o.live.GetUID()))
	}
	slices.Sort(uids)
	return api.Hash(tokenLength, uids...)
}

// resourcesOf returns the resources of orphans, as kubectl get takes them.
func resourcesOf(all []orphan) string {
	var out []string
	for _, o := range all {
		out = append(out, o.GroupResource().String())
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

// wanted reports whether an object has a leaf: the one it was made from, or, if the cluster has got another name since,
// the leaf of the same root.
func (s *syncer) wanted(r schema.GroupVersionResource, leaf watch.Key, object string) bool {
	if s.up.Has(r, leaf) {
		return true
	}
	leaf.Name = api.LeafName(object, s.Cluster)
	return s.up.Has(r, leaf)
}

// boundClaims returns the logical clusters in which kcp has applied the claims of the APIExport of the cluster. It
// shows the owner of an APIExport its bindings without a claim (kcp: pkg/virtual/apiexport/controllers/apireconciler).
func (s *syncer) boundClaims() map[string]bool {
	out := map[string]bool{}
	for _, b := range s.bound.List(kcpapi.APIBinding.GVR()) {
		if b.GetDeletionTimestamp() == nil && api.ClaimsApplied(b.Unstructured) {
			out[watch.KeyOf(b.Unstructured).Cluster] = true
		}
	}
	return out
}

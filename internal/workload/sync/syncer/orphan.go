package syncer

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
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

const (
	// orphanGrace is how long an object has no leaf until it is removed. A mistake elsewhere, such as a restored
	// backup, can be noticed until then.
	orphanGrace = time.Hour
	// orphanRecord is the time after which it is recorded how long an object has had no leaf. A syncer that starts
	// again continues with that: it can wait longer than the grace, and never shorter.
	orphanRecord = 10 * time.Minute
)

// annotationOrphan has how long an object of the cluster has had no leaf. Clocks are not compared: each syncer adds
// what it has seen.
const annotationOrphan = api.Group + "/orphan-for"

// sighting is how long an object has been seen without a leaf.
type sighting struct {
	// before is the age that was recorded when this syncer saw it first, at since. recorded is the age recorded now.
	before, recorded time.Duration
	since            time.Time
}

// age returns how long the object has been seen without a leaf.
func (s sighting) age(now time.Time) time.Duration {
	if s.since.IsZero() {
		return 0
	}
	return s.before + now.Sub(s.since)
}

// sweep removes orphans whose time has ended. It looks at nothing if anything could not be listed, on either side,
// because a leaf that is not known may exist.
func (s *syncer) sweep(ctx context.Context) {
	defer s.begin("the look for orphans")()
	defer s.report()
	s.mu.Lock()
	endpoints := s.endpoints
	resources := s.resources
	release := s.release
	s.mu.Unlock()
	if s.blocked() != nil || !s.complete(endpoints, resources) {
		return
	}
	found, back := s.find(resources)
	needed := map[orphan]bool{}
	for o, live := range found {
		needed[o] = s.podsNeed(o.GroupVersionResource, live.GetNamespace(), resources, false)
	}
	if !s.complete(endpoints, resources) {
		return // a watch has ended, or is no longer wanted, and what it had could not be found
	}
	s.sight(ctx, found)
	for o, live := range back {
		if err := s.recordOrphan(ctx, o, live, nil); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot record that an object has a leaf again")
		}
	}
	v := s.judge(found, needed, release)
	for o := range v.remove {
		live := found[o]
		klog.FromContext(ctx).Info("Removing an object without a leaf", "resource", o.GroupResource(), "namespace",
			live.GetNamespace(), "name", live.GetName())
		if err := s.collect(ctx, o, live); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove an object without a leaf")
		}
	}
	s.mu.Lock()
	s.orphans = v.kept
	s.found = v.found
	s.mu.Unlock()
}

// complete reports whether everything that the syncer watches is known.
func (s *syncer) complete(endpoints []string, resources []schema.GroupVersionResource) bool {
	return len(endpoints) > 0 && s.up.Complete() && s.bound.Complete() && s.down.Complete() &&
		s.up.CompleteFor(endpoints, resources) && s.down.CompleteFor([]string{s.physicalURL()}, resources)
}

// sight counts how long objects have no leaf, and records it on them.
func (s *syncer) sight(ctx context.Context, found map[orphan]*unstructured.Unstructured) {
	s.mu.Lock()
	adopted := s.adopted
	s.adopted = map[types.UID]bool{}
	s.mu.Unlock()
	now, present := s.Now(), map[types.UID]bool{}
	for o, live := range found {
		present[o.uid] = true
		at, known := s.sightings[o.uid]
		if !known || adopted[o.uid] {
			before, _ := time.ParseDuration(live.GetAnnotations()[annotationOrphan])
			if adopted[o.uid] {
				before = 0 // what the watch shows can be that of before
			}
			at = sighting{before: max(0, before), recorded: max(0, before), since: now}
		}
		if age := at.age(now); age-at.recorded >= orphanRecord {
			if err := s.recordOrphan(ctx, o, live, age.Round(time.Second).String()); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot record that an object has no leaf")
			} else {
				at.recorded = age
			}
		}
		s.sightings[o.uid] = at
	}
	for uid := range s.sightings {
		if !present[uid] {
			delete(s.sightings, uid) // its leaf is there again, or it is gone
		}
	}
}

// adopt ends the time for which an object has had no leaf: the next time without one starts again at zero, also if it
// begins before the next sweep.
func (s *syncer) adopt(ctx context.Context, i item, live *unstructured.Unstructured) error {
	s.mu.Lock()
	s.adopted[live.GetUID()] = true
	s.mu.Unlock()
	if _, was := live.GetAnnotations()[annotationOrphan]; !was {
		return nil
	}
	return s.recordOrphan(ctx, orphan{i.GroupVersionResource, live.GetUID()}, live, nil)
}

// recordOrphan sets the annotation of an orphan, or removes it if the value is nil.
func (s *syncer) recordOrphan(ctx context.Context, o orphan, live *unstructured.Unstructured, value any) error {
	client, err := s.below(o.GroupVersionResource, live.GetNamespace())
	if err != nil {
		return err
	}
	return mark(ctx, client, live, "annotations", annotationOrphan, value)
}

// collect deletes an orphan. A namespace is kept while it has volumes.
func (s *syncer) collect(ctx context.Context, o orphan, live *unstructured.Unstructured) error {
	if o.GroupVersionResource == namespaces {
		if keep, err := s.hasVolumes(ctx, live); keep || err != nil {
			return err
		}
	}
	return s.delete(ctx, o.GroupVersionResource, live)
}

// find returns the orphans, and the objects that have been orphans and have a leaf again. A namespace is an orphan if
// it has no leaf and no object, of any resource that it has ever had objects of.
func (s *syncer) find(resources []schema.GroupVersionResource) (found, back map[orphan]*unstructured.Unstructured) {
	found = map[orphan]*unstructured.Unstructured{}
	back = map[orphan]*unstructured.Unstructured{}
	used := map[string]bool{}
	for _, r := range resources {
		for _, leaf := range s.up.List(r) {
			k := watch.KeyOf(leaf.Unstructured)
			used[api.DownstreamNamespace(s.Setup, k.Cluster, k.Namespace)] = true
		}
		for _, live := range s.down.List(r) {
			used[live.GetNamespace()] = true
			leaf, ok := parseLeaf(live.GetAnnotations()[annotationLeaf])
			if !ok {
				continue // not ours, though it has our labels
			}
			switch _, was := live.GetAnnotations()[annotationOrphan]; {
			case !s.wanted(r, leaf, live.GetName()):
				found[orphan{r, live.GetUID()}] = live.Unstructured
			case was:
				back[orphan{r, live.GetUID()}] = live.Unstructured
			}
		}
	}
	for _, ns := range s.down.List(namespaces) {
		if !used[ns.GetName()] && ns.GetDeletionTimestamp() == nil && removable(ns.Unstructured, resources) {
			found[orphan{namespaces, ns.GetUID()}] = ns.Unstructured
		}
	}
	return found, back
}

// wanted reports whether an object has a leaf: the one it was made from, or, if the cluster has got another name since,
// the leaf of the same root.
func (s *syncer) wanted(r schema.GroupVersionResource, leaf watch.Key, object string) bool {
	if _, exists := s.up.Get(r, leaf); exists {
		return true
	}
	leaf.Name = api.LeafName(object, s.Cluster)
	_, exists := s.up.Get(r, leaf)
	return exists
}

// podsNeed reports whether pods of a namespace can need an object of a resource that has no leaf: it is kept as long as
// they run, an orphan itself. Pods of an earlier revision can need it, also beside a newer workload that has a leaf.
// But what restricts connections, and what has just lost its leaf, is only kept for orphans, which the controller does
// not know. Resources are the synced resources.
func (s *syncer) podsNeed(r schema.GroupVersionResource, namespace string, resources []schema.GroupVersionResource,
	justLost bool) bool {
	k, _ := kinds.OfResource(r.GroupResource())
	if k.Spread != kinds.Follow || k.Data == kinds.AlwaysData || k.TargetPath != nil { // no pod needs an autoscaler
		return false
	}
	workloads := 0
	orphaned := 0
	for _, r := range resources {
		if k, _ := kinds.OfResource(r.GroupResource()); k.Template == nil {
			continue
		}
		for _, live := range s.down.In(r, "", namespace) {
			leaf, ok := parseLeaf(live.GetAnnotations()[annotationLeaf])
			if !ok {
				continue
			}
			workloads++
			if !s.wanted(r, leaf, live.GetName()) {
				orphaned++
			}
		}
	}
	if justLost || k.Guards {
		return orphaned > 0 && orphaned == workloads
	}
	ns, known := s.down.Get(namespaces, watch.Key{Name: namespace})
	return workloads > 0 || !known || !removable(ns.Unstructured, resources)
}

package syncer

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// endInterval is the time between two looks at an object that is being deleted, and that is not watched.
const endInterval = 2 * time.Second

// remove deletes the object of a leaf that is being deleted, and removes the finalizer when the object is gone. No
// schema is needed for that.
func (s *syncer) remove(ctx context.Context, i item, leaf watch.Object) error {
	if !slices.Contains(leaf.GetFinalizers(), api.FinalizerSyncer) {
		return nil
	}
	if err := s.member.replaced(); err != nil {
		return err // the object is, or may be, in another cluster: a UID is not read or not recorded yet
	}
	namespace := api.DownstreamNamespace(s.Setup, i.Cluster, i.Namespace)
	live, err := s.read(ctx, i.GroupVersionResource, namespace, name(leaf.Unstructured))
	if err != nil {
		return err
	}
	if live != nil && live.GetAnnotations()[annotationLeaf] == i.Key.String() && !ofLater(live, leaf.Unstructured) &&
		!s.orphansNeed(i.GroupVersionResource, namespace) {
		// The end of the object comes with the watch, if there is one, and brings the leaf back here.
		if !slices.Contains(s.synced(), i.GroupVersionResource) {
			s.queue.AddAfter(i, endInterval)
		}
		return s.delete(ctx, i.GroupVersionResource, live)
	}
	if err := s.namespacer.remove(ctx, i); err != nil {
		return err
	}
	s.applied.Delete(i)
	rest := slices.DeleteFunc(slices.Clone(leaf.GetFinalizers()),
		func(f string) bool { return f == api.FinalizerSyncer })
	err = s.setFinalizers(ctx, i, leaf, rest)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ofLater reports whether an object was made of a leaf of the same name that kcp has created later, such as before a
// backup was restored in which this one is being deleted. No user has deleted that leaf: without it, the object is an
// orphan. An object of an earlier leaf ends with this one, which would have replaced it. So does one of an earlier
// release, which does not say of which leaf it was made.
func ofLater(object, leaf *unstructured.Unstructured) bool {
	uid, at := object.GetAnnotations()[annotationUID], object.GetAnnotations()[annotationCreated]
	if uid == "" || uid == string(leaf.GetUID()) {
		return false
	}
	created, err := time.Parse(time.RFC3339, at)
	return err != nil || !created.Before(leaf.GetCreationTimestamp().Time)
}

// orphansNeed reports whether an object is kept though its leaf ends: it restricts the connections of the pods in its
// namespace, or they can need it, and all workloads there are orphans, which the controller does not know.
func (s *syncer) orphansNeed(r schema.GroupVersionResource, namespace string) bool {
	k, _ := kinds.OfResource(r.GroupResource())
	if k.Spread != kinds.Follow || k.Data == kinds.AlwaysData || k.TargetPath != nil { // no pod needs an autoscaler
		return false
	}
	orphans := false
	for _, r := range s.synced() {
		if k, _ := kinds.OfResource(r.GroupResource()); k.Template == nil {
			continue
		}
		for _, live := range s.down.In(r, "", namespace) {
			leaf, ok := parseLeaf(live.GetAnnotations()[annotationLeaf])
			if ok && s.wanted(r, leaf, live.GetName()) {
				return false
			}
			orphans = orphans || ok
		}
	}
	return orphans
}

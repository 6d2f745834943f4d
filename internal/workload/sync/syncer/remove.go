package syncer

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	client, err := s.below(i.GroupVersionResource, namespace)
	if err != nil {
		return err
	}
	live, err := client.Get(ctx, name(leaf.Unstructured), metav1.GetOptions{})
	switch {
	case isUnserved(err):
		return fmt.Errorf("cluster %s does not serve version %s of %s, so whether %s/%s is gone there is not known: "+
			"serve that version again",
			s.Cluster, i.Version, i.GroupResource(), namespace, name(leaf.Unstructured))
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("read %s %s/%s of cluster %s: %w", i.GroupResource(), namespace,
			name(leaf.Unstructured), s.Cluster, err)
	case err == nil && live.GetAnnotations()[annotationLeaf] == i.Key.String() && !ofLater(live, leaf.Unstructured) &&
		!s.orphansNeed(i.GroupVersionResource, namespace):
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
	err = s.leaves.setFinalizers(ctx, i, leaf, rest)
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

// isUnserved reports whether an API server does not know a resource: its answer is not about an object.
func isUnserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
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

package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// remove deletes the object of a leaf that is being deleted, and removes the finalizer when the object is gone.
func (s *syncer) remove(ctx context.Context, i item, leaf watch.Object) error {
	if !slices.Contains(leaf.GetFinalizers(), api.FinalizerSyncer) {
		return nil
	}
	namespace := api.DownstreamNamespace(s.Setup, i.Cluster, i.Namespace)
	client, err := s.below(i.GroupVersionResource, namespace)
	if err != nil {
		return err
	}
	live, err := client.Get(ctx, name(leaf.Unstructured), metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("read %s %s/%s of cluster %s: %w", i.GroupResource(), namespace, name(leaf.Unstructured), s.Cluster, err)
	case err == nil && live.GetAnnotations()[annotationLeaf] == i.Key.String():
		// The end of the object comes with the watch, and brings the leaf back here.
		return s.delete(ctx, i.GroupVersionResource, live)
	}
	s.mu.Lock()
	delete(s.applied, i)
	s.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(leaf.GetFinalizers()), func(f string) bool { return f == api.FinalizerSyncer })
	err = s.setFinalizers(ctx, i, leaf, rest)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// propagation returns how objects of a resource are deleted. What owns others, such as a Deployment, is gone only when they are: an object of
// the same name can follow at once. If the garbage collector of the cluster starts at that moment, it does not see that the owner of
// the previous pods is gone, and they run on without an owner.
func propagation(r schema.GroupVersionResource) metav1.DeletionPropagation {
	if r.Group == "" || strings.HasSuffix(r.Group, ".k8s.io") {
		return metav1.DeletePropagationBackground
	}
	return metav1.DeletePropagationForeground
}

// delete deletes an object of the physical cluster, if it still is the one that was seen. What it owns goes with it.
func (s *syncer) delete(ctx context.Context, r schema.GroupVersionResource, seen *unstructured.Unstructured) error {
	if seen.GetDeletionTimestamp() != nil {
		return nil
	}
	client, err := s.below(r, seen.GetNamespace())
	if err != nil {
		return err
	}
	uid, policy := seen.GetUID(), propagation(r)
	err = client.Delete(ctx, seen.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s/%s of cluster %s: %w", r.GroupResource(), seen.GetNamespace(), seen.GetName(), s.Cluster, err)
	}
	return nil
}

package syncer

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
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

// delete deletes an object of the physical cluster, if it still is the one that was seen. What it owns goes with it.
func (s *syncer) delete(ctx context.Context, r schema.GroupVersionResource, seen *unstructured.Unstructured) error {
	if seen.GetDeletionTimestamp() != nil {
		return nil
	}
	client, err := s.below(r, seen.GetNamespace())
	if err != nil {
		return err
	}
	uid, background := seen.GetUID(), metav1.DeletePropagationBackground
	err = client.Delete(ctx, seen.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s/%s of cluster %s: %w", r.GroupResource(), seen.GetNamespace(), seen.GetName(), s.Cluster, err)
	}
	return nil
}

// ensureNamespace creates the namespace that stands for a namespace of a logical cluster. It fails with a collisionError if there is
// a namespace with the name that stands for something else: nothing is written to it.
func (s *syncer) ensureNamespace(ctx context.Context, cluster, namespace string) error {
	want := api.DownstreamLabels(s.Setup, cluster, namespace)
	ns := api.DownstreamNamespace(s.Setup, cluster, namespace)
	if known, ok := s.down.Get(namespaces, watch.Key{Name: ns}); ok && known.GetDeletionTimestamp() == nil && contains(known.GetLabels(), want) {
		return nil
	}
	client, err := s.below(namespaces, "")
	if err != nil {
		return err
	}
	live, err := client.Get(ctx, ns, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		u.SetName(ns)
		labels := api.DownstreamLabels(s.Setup, cluster, namespace)
		labels[api.LabelCluster] = s.Cluster
		u.SetLabels(labels)
		_, err = client.Create(ctx, u, metav1.CreateOptions{FieldManager: api.ManagerSyncer})
	case err == nil && !contains(live.GetLabels(), want):
		return &collisionError{api.ReasonNamespaceCollision, fmt.Sprintf(
			"namespace %s of cluster %s does not belong to namespace %s of workspace %s: delete it, or rename the namespace in the workspace",
			ns, s.Cluster, namespace, cluster)}
	case err == nil && live.GetDeletionTimestamp() != nil:
		return fmt.Errorf("namespace %s of cluster %s is being deleted", ns, s.Cluster)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) { // another worker was faster
		return fmt.Errorf("namespace %s of cluster %s: %w", ns, s.Cluster, err)
	}
	return nil
}

// contains reports whether labels have all the wanted values.
func contains(labels, want map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}

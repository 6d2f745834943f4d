package standin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// addClaims adds the volumes of a StatefulSet to one of its pods, and creates their claims.
func (s *Site) addClaims(ctx context.Context, w workload, ordinal int64, pod *unstructured.Unstructured) error {
	templates, _, _ := unstructured.NestedSlice(w.Object, "spec", "volumeClaimTemplates")
	volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	for _, t := range templates {
		claim := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(t.(map[string]any))}
		volume := claim.GetName()
		claim.SetAPIVersion("v1")
		claim.SetKind("PersistentVolumeClaim")
		claim.SetName(fmt.Sprintf("%s-%s-%d", volume, w.GetName(), ordinal))
		if err := s.createClaim(ctx, claim); err != nil {
			return err
		}
		volumes = append(volumes, map[string]any{
			"name": volume, "persistentVolumeClaim": map[string]any{"claimName": claim.GetName()},
		})
	}
	return unstructured.SetNestedSlice(pod.Object, volumes, "spec", "volumes")
}

// createClaim creates a claim unless it exists. It replaces one that is being deleted.
func (s *Site) createClaim(ctx context.Context, claim *unstructured.Unstructured) error {
	client := s.admin.Resource(Claims).Namespace(s.Namespace)
	_, err := client.Create(ctx, claim, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := client.Get(ctx, claim.GetName(), metav1.GetOptions{})
	if err == nil && existing.GetDeletionTimestamp() == nil {
		return nil
	}
	if err == nil {
		err = s.release(ctx, Claims, existing)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err = client.Create(ctx, claim, metav1.CreateOptions{})
	return err
}

// release removes the finalizer of a deleted claim. Nothing here deletes claims while pods use them.
func (s *Site) release(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured) error {
	if o.GetDeletionTimestamp() == nil || len(o.GetFinalizers()) == 0 {
		return nil
	}
	o = o.DeepCopy()
	o.SetFinalizers(nil)
	_, err := s.admin.Resource(r).Namespace(s.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	return err
}

// finalize ends the deletion of a namespace. What is in it stays: kcpctl deletes only empty namespaces.
func (s *Site) finalize(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured) error {
	if o.GetDeletionTimestamp() == nil {
		return nil
	}
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "spec", "finalizers")
	_, err := s.admin.Resource(r).Update(ctx, o, metav1.UpdateOptions{}, "finalize")
	return err
}

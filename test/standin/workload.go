package standin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// workload is a version of a Deployment or a StatefulSet.
type workload struct {
	*unstructured.Unstructured
	owner    string
	replicas int64
	template map[string]any
	// revision is the name of the version. It differs for each object, also if two have the same name.
	revision string
}

func workloadOf(r schema.GroupVersionResource, o *unstructured.Unstructured) (workload, error) {
	w := workload{Unstructured: o, owner: ownerOf(r, o.GetName()), replicas: 1}
	if n, ok, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); ok {
		w.replicas = n
	}
	w.template, _, _ = unstructured.NestedMap(o.Object, "spec", "template")
	raw, err := json.Marshal(w.template)
	if err != nil {
		return w, err
	}
	w.revision = fmt.Sprintf("%s-%x", o.GetName(), sha256.Sum256(append([]byte(o.GetUID()), raw...)))[:len(o.GetName())+11]
	return w, nil
}

// ownerOf names a workload.
func ownerOf(r schema.GroupVersionResource, name string) string { return r.Resource + "/" + name }

// roll replaces the pods of a new version of a workload, and reports in its status that they are ready.
func (s *Site) roll(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured) error {
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if observed == o.GetGeneration() || o.GetDeletionTimestamp() != nil {
		return nil
	}
	w, err := workloadOf(r, o)
	if err != nil {
		return err
	}
	if err := s.replacePods(ctx, w); err != nil {
		return err
	}
	o = o.DeepCopy()
	o.Object["status"] = w.status(r)
	_, err = s.admin.Resource(r).Namespace(s.Namespace).UpdateStatus(ctx, o, metav1.UpdateOptions{FieldManager: "stand-in"})
	return err
}

// status is the status of a workload whose pods are all ready.
func (w workload) status(r schema.GroupVersionResource) map[string]any {
	status := map[string]any{
		"observedGeneration": w.GetGeneration(), "replicas": w.replicas, "updatedReplicas": w.replicas, "readyReplicas": w.replicas,
		"availableReplicas": w.replicas,
	}
	if r == StatefulSets {
		status["currentReplicas"], status["currentRevision"], status["updateRevision"] = w.replicas, w.revision, w.revision
		return status
	}
	status["conditions"] = []any{
		map[string]any{"type": "Available", "status": "True"},
		map[string]any{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
	}
	return status
}

// replacePods creates the pods of a version unless they exist, and then deletes those of previous versions.
func (s *Site) replacePods(ctx context.Context, w workload) error {
	client := s.admin.Resource(Pods).Namespace(s.Namespace)
	selector, _, _ := unstructured.NestedStringMap(w.Object, "spec", "selector", "matchLabels")
	before, err := client.List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector).String()})
	if err != nil {
		return err
	}
	files, err := s.mounted(ctx, w.template)
	if err != nil {
		return fmt.Errorf("a pod was started before the files that it mounts existed: %w", err)
	}
	wanted := map[string]bool{}
	for i := range w.replicas {
		name := fmt.Sprintf("%s-%d", w.revision, i)
		wanted[name] = true
		if err := s.createPod(ctx, w, i, name, files); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for i := range before.Items {
		if name := before.Items[i].GetName(); !wanted[name] {
			if err := s.kill(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// createPod creates a pod with its volumes, starts it, and reports that it is ready.
func (s *Site) createPod(ctx context.Context, w workload, ordinal int64, name string, files map[string][]byte) error {
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(w.template)}
	o.SetAPIVersion("v1")
	o.SetKind("Pod")
	o.SetName(name)
	all := maps.Clone(o.GetLabels())
	all["controller-revision-hash"] = w.revision
	o.SetLabels(all)
	if err := s.addClaims(ctx, w, ordinal, o); err != nil {
		return err
	}
	client := s.admin.Resource(Pods).Namespace(s.Namespace)
	o, err := client.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod); err != nil {
		return err
	}
	s.start(w.owner, pod, files)
	now := time.Now().UTC().Format(time.RFC3339)
	o.Object["status"] = map[string]any{
		"phase": "Running", "startTime": now,
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": now}},
	}
	_, err = client.UpdateStatus(ctx, o, metav1.UpdateOptions{})
	return err
}

// collect deletes the pods of a deleted workload.
func (s *Site) collect(ctx context.Context, r schema.GroupVersionResource, name string) error {
	for pod, p := range s.Running() {
		if p.owner != ownerOf(r, name) {
			continue
		}
		if err := s.kill(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) kill(ctx context.Context, pod string) error {
	s.End(pod)
	at := int64(0)
	err := s.admin.Resource(Pods).Namespace(s.Namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: &at})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

//go:build integration

package faults

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

var (
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	statefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	leases       = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// standin simulates what an API server without a cluster lacks: the controllers of Deployments and StatefulSets, and nodes.
// A workload has one pod, which is ready immediately.
type standin struct {
	admin dynamic.Interface
	place func(namespace string) *place // nil if the namespace is not a place
}

// run runs until ctx ends.
func (s *standin) run(ctx context.Context) error {
	all := dynamicinformer.NewDynamicSharedInformerFactory(s.admin, 0)
	for _, r := range []schema.GroupVersionResource{deployments, statefulSets} {
		roll := func(o any) {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				return
			}
			if p := s.place(u.GetNamespace()); p != nil {
				if err := s.roll(ctx, p, r, u); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					p.problem("stand-in: %s %s: %v", u.GetKind(), u.GetName(), err)
				}
			}
		}
		if _, err := all.ForResource(r).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: roll, UpdateFunc: func(_, o any) { roll(o) }, DeleteFunc: func(o any) { s.collect(ctx, o) },
		}); err != nil {
			return err
		}
	}
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	return nil
}

// roll updates the pod of a workload, and the status of the workload.
func (s *standin) roll(ctx context.Context, p *place, r schema.GroupVersionResource, o *unstructured.Unstructured) error {
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if observed == o.GetGeneration() || o.GetDeletionTimestamp() != nil {
		return nil
	}
	template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
	raw, err := json.Marshal(template)
	if err != nil {
		return err
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(raw))[:10]
	if err := s.replacePods(ctx, p, o, o.GetName()+"-"+hash, template); err != nil {
		return err
	}
	o = o.DeepCopy()
	o.Object["status"] = map[string]any{
		"observedGeneration": o.GetGeneration(), "replicas": int64(1), "updatedReplicas": int64(1), "readyReplicas": int64(1),
		"availableReplicas": int64(1),
	}
	if r == statefulSets {
		for _, k := range []string{"currentRevision", "updateRevision"} {
			_ = unstructured.SetNestedField(o.Object, o.GetName()+"-"+hash, "status", k)
		}
		_ = unstructured.SetNestedField(o.Object, int64(1), "status", "currentReplicas")
	} else {
		_ = unstructured.SetNestedSlice(o.Object, []any{
			map[string]any{"type": "Available", "status": "True"},
			map[string]any{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
		}, "status", "conditions")
	}
	_, err = s.admin.Resource(r).Namespace(o.GetNamespace()).UpdateStatus(ctx, o, metav1.UpdateOptions{FieldManager: "stand-in"})
	return err
}

// replacePods creates a pod unless it exists, and deletes the pods of previous templates.
func (s *standin) replacePods(ctx context.Context, p *place, owner *unstructured.Unstructured, name string,
	template map[string]any,
) error {
	client := s.admin.Resource(pods).Namespace(owner.GetNamespace())
	selector, _, _ := unstructured.NestedStringMap(owner.Object, "spec", "selector", "matchLabels")
	before, err := client.List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector).String()})
	if err != nil {
		return err
	}
	pod := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(template)}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(name)
	addClaims(pod, owner)
	if pod, err = client.Create(ctx, pod, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	typed := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod.Object, typed); err != nil {
		return err
	}
	if err := p.start(ctx, typed); err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339)
	pod.Object["status"] = map[string]any{
		"phase": "Running", "startTime": now,
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": now}},
	}
	if _, err := client.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return err
	}
	for i := range before.Items {
		if err := s.kill(ctx, p, before.Items[i].GetName()); err != nil {
			return err
		}
	}
	return nil
}

// addClaims adds the volumes of its StatefulSet to a pod.
func addClaims(pod, owner *unstructured.Unstructured) {
	claims, _, _ := unstructured.NestedSlice(owner.Object, "spec", "volumeClaimTemplates")
	volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	for _, c := range claims {
		name, _, _ := unstructured.NestedString(c.(map[string]any), "metadata", "name")
		volumes = append(volumes, map[string]any{
			"name": name, "persistentVolumeClaim": map[string]any{"claimName": name + "-" + owner.GetName() + "-0"},
		})
	}
	_ = unstructured.SetNestedSlice(pod.Object, volumes, "spec", "volumes")
}

func (s *standin) kill(ctx context.Context, p *place, pod string) error {
	p.end(pod)
	at := int64(0)
	err := s.admin.Resource(pods).Namespace(p.namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: &at})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// collect deletes the pods of a deleted workload.
func (s *standin) collect(ctx context.Context, o any) {
	if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = d.Obj
	}
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	p := s.place(u.GetNamespace())
	if p == nil {
		return
	}
	for name := range p.running() {
		if len(name) == len(u.GetName())+11 && name[:len(u.GetName())+1] == u.GetName()+"-" {
			if err := s.kill(ctx, p, name); err != nil {
				p.problem("stand-in: delete pod %s: %v", name, err)
			}
		}
	}
}

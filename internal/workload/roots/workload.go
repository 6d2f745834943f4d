package roots

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/splitter"
)

// workloadOf returns what is to be assigned. The error lists mistakes in annotations.
func workloadOf(i item, root *unstructured.Unstructured) (schedule.Workload, error) {
	claims, _, _ := unstructured.NestedSlice(root.Object, "spec", "volumeClaimTemplates")
	data := len(claims) > 0 || i.GroupResource() == schema.GroupResource{Resource: "persistentvolumeclaims"}
	hints, err := schedule.ParseHints(root.GetAnnotations(), nil, schedule.DefaultSpread(i.GroupResource(), data))
	replicas, ok, _ := unstructured.NestedInt64(root.Object, "spec", "replicas")
	if !ok {
		replicas = 1
	}
	return schedule.Workload{Key: i.Key.String(), Hints: hints, Replicas: replicas, Pinned: data}, err
}

// shareOf returns what a cluster has of a workload.
func shareOf(leaf *unstructured.Unstructured, surge bool) schedule.Share {
	replicas, ok, _ := unstructured.NestedInt64(leaf.Object, "spec", "replicas")
	if !ok {
		replicas = 1
	}
	available, ok, _ := unstructured.NestedInt64(leaf.Object, "status", "availableReplicas")
	if !ok {
		available, _, _ = unstructured.NestedInt64(leaf.Object, "status", "readyReplicas")
	}
	return schedule.Share{Replicas: replicas, Available: available, Surge: surge}
}

// candidates returns the clusters as the schedule sees them.
func (s *Scheduler) candidates(gr schema.GroupResource, clusters []*api.Cluster) []schedule.Cluster {
	var out []schedule.Cluster
	for _, c := range clusters {
		out = append(out, schedule.Cluster{
			Name: c.Name, Labels: c.Labels, Ready: isReady(c), Evicted: s.evicted(c), Unschedulable: c.Spec.Unschedulable,
			Draining: c.DeletionTimestamp != nil, API: c.API(gr), Free: schedule.Free(c.Status.Capacity, nil),
		})
	}
	return out
}

func readyCondition(c *api.Cluster) *metav1.Condition {
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == api.ConditionReady {
			return &c.Status.Conditions[i]
		}
	}
	return nil
}

func isReady(c *api.Cluster) bool {
	r := readyCondition(c)
	return r != nil && r.Status == metav1.ConditionTrue
}

// evicted reports whether a cluster has been not ready for so long that its share runs elsewhere.
func (s *Scheduler) evicted(c *api.Cluster) bool {
	r, after := readyCondition(c), c.EvictAfter()
	return r != nil && r.Status != metav1.ConditionTrue && after > 0 && s.Now().Sub(r.LastTransitionTime.Time) >= after
}

// condition returns the condition Scheduled of a root.
func condition(d schedule.Decision, changes splitter.Changes, hints error, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: api.ConditionScheduled, Status: metav1.ConditionTrue, Reason: api.ReasonScheduled, LastTransitionTime: metav1.NewTime(now)}
	switch {
	case hints != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, api.ReasonInvalidHint, hints.Error()
	case len(changes.Collisions) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, api.ReasonNameCollision
		c.Message = fmt.Sprintf("%s %s has the name of a leaf: rename it", changes.Collisions[0].GetKind(), changes.Collisions[0].GetName())
	case len(d.Goal) == 0 || d.Unplaced > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, api.ReasonNoCluster, d.Message
	}
	return c
}

// keepTime keeps the time of a condition whose status has not changed.
func keepTime(root *unstructured.Unstructured, c metav1.Condition) metav1.Condition {
	all, _, _ := unstructured.NestedSlice(root.Object, "status", "conditions")
	for _, o := range all {
		m, _ := o.(map[string]any)
		at, _ := m["lastTransitionTime"].(string)
		if t, err := time.Parse(time.RFC3339, at); m["type"] == c.Type && m["status"] == string(c.Status) && err == nil {
			c.LastTransitionTime = metav1.NewTime(t)
		}
	}
	return c
}

func patch(ctx context.Context, client dynamic.ResourceInterface, i item, content map[string]any, subresources ...string) error {
	raw, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", i.GroupResource(), i.Key, err)
	}
	_, err = client.Patch(ctx, i.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: api.ManagerController}, subresources...)
	if err != nil {
		return fmt.Errorf("patch %s %s in kcp: %w", i.GroupResource(), i.Key, err)
	}
	return nil
}

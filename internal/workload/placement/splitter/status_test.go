package splitter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// leaf returns a leaf of generation 2 that was made from a generation of its root.
func leaf(t *testing.T, head, generation, status string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "{"+head+", metadata: {generation: 2, annotations: {workloads.kcp.dev/root-generation: '"+generation+"'}}, status: "+status+"}")
}

const deployment = "apiVersion: apps/v1, kind: Deployment"

func TestAggregate(t *testing.T) {
	for name, tc := range map[string]struct {
		head   string
		c1, c2 string
		want   string
	}{
		"deployments are summed": {
			deployment,
			"{observedGeneration: 2, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3, collisionCount: 1}",
			"{observedGeneration: 2, replicas: 2, updatedReplicas: 1, readyReplicas: 1, unavailableReplicas: 1}",
			"{observedGeneration: 7, replicas: 5, updatedReplicas: 4, readyReplicas: 4, availableReplicas: 3, unavailableReplicas: 1}",
		},
		"a cluster has not seen the leaf": {
			deployment, "{observedGeneration: 2, replicas: 3}", "{observedGeneration: 1, replicas: 3}", "{observedGeneration: 6, replicas: 6}",
		},
		"a cluster has reported nothing": {deployment, "{observedGeneration: 2, replicas: 3}", "{}", "{observedGeneration: 6, replicas: 3}"},
		"revisions": {
			"apiVersion: apps/v1, kind: StatefulSet",
			"{replicas: 1, currentRevision: a, updateRevision: b}", "{replicas: 1, currentRevision: b, updateRevision: b}",
			"{replicas: 2, updateRevision: b, observedGeneration: 6}",
		},
		"load balancers": {
			"apiVersion: v1, kind: Service",
			"{loadBalancer: {ingress: [{ip: 1.1.1.1}, {ip: 2.2.2.2}]}}", "{loadBalancer: {ingress: [{ip: 2.2.2.2}, {ip: 3.3.3.3}]}}",
			"{loadBalancer: {ingress: [{ip: 1.1.1.1}, {ip: 2.2.2.2}, {ip: 3.3.3.3}]}, observedGeneration: 6}",
		},
		"times": {
			"apiVersion: batch/v1, kind: Job",
			"{startTime: '2026-01-01T00:00:02Z', completionTime: '2026-01-01T00:00:09Z', succeeded: 1}", "{startTime: '2026-01-01T00:00:01Z', succeeded: 1}",
			"{startTime: '2026-01-01T00:00:01Z', completionTime: '2026-01-01T00:00:09Z', succeeded: 2, observedGeneration: 6}",
		},
		"other kinds": {"apiVersion: example.com/v1, kind: Widget", "{phase: A}", "{phase: B}", "{observedGeneration: 6}"},
	} {
		t.Run(name, func(t *testing.T) {
			root := object(t, "{"+tc.head+", metadata: {generation: 7}, status: {observedGeneration: 6}}")
			leaves := map[string]*unstructured.Unstructured{"c1": leaf(t, tc.head, "7", tc.c1), "c2": leaf(t, tc.head, "7", tc.c2)}
			got := splitter.Aggregate(root, leaves)
			require.Equal(t, object(t, "{"+tc.head+", status: "+tc.want+"}").Object["status"], got)
		})
	}
}

func TestTheGenerationIsObservedWhenAllLeavesAreThere(t *testing.T) {
	root := object(t, "{"+deployment+", metadata: {generation: 7}}")
	done := leaf(t, deployment, "7", "{observedGeneration: 2, replicas: 1}")
	for name, tc := range map[string]struct {
		leaves map[string]*unstructured.Unstructured
		want   any
	}{
		"all":                      {map[string]*unstructured.Unstructured{"c1": done}, int64(7)},
		"one is missing":           {map[string]*unstructured.Unstructured{"c1": done, "c2": nil}, nil},
		"one is of an older root":  {map[string]*unstructured.Unstructured{"c1": leaf(t, deployment, "6", "{observedGeneration: 2}")}, nil},
		"nothing is scheduled yet": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, splitter.Aggregate(root, tc.leaves)["observedGeneration"])
		})
	}
}

// Fields that cannot be added up, such as the indexes of a Job, are only about one cluster, and so is the status of one
// leaf. They are left out as soon as there is another leaf to come.
func TestTheStatusOfOneLeaf(t *testing.T) {
	for head, known := range map[string]bool{"apiVersion: example.com/v1, kind: Widget": false, "apiVersion: batch/v1, kind: Job": true} {
		root := object(t, "{"+head+", metadata: {generation: 7}}")
		leaves := map[string]*unstructured.Unstructured{"c1": leaf(t, head, "7", "{observedGeneration: 2, active: 1, completedIndexes: '0-2', deep: {a: 1}}")}
		want := map[string]any{"observedGeneration": int64(7), "active": int64(1), "completedIndexes": "0-2", "deep": map[string]any{"a": int64(1)}}
		require.Equal(t, want, splitter.Aggregate(root, leaves))
		if leaves["c2"] = nil; known {
			require.Equal(t, map[string]any{"active": int64(1)}, splitter.Aggregate(root, leaves))
		}
	}
}

func TestConditions(t *testing.T) {
	conditions := func(all string) string { return "{conditions: [" + all + "]}" }
	leaves := map[string]*unstructured.Unstructured{
		"c1": leaf(t, deployment, "7", conditions(`{type: Available, status: "True", reason: Min, message: fine, lastTransitionTime: "2026-01-01T00:00:01Z"},
			{type: Progressing, status: "True", reason: New, message: up, lastTransitionTime: "2026-01-01T00:00:01Z"},
			{type: Synced, status: "True", reason: Synced, message: ""}`)),
		"c2": leaf(t, deployment, "7", conditions(`{type: Available, status: "False", reason: Less, message: no pods, lastTransitionTime: "2026-01-01T00:00:02Z"},
			{type: Progressing, status: "True", reason: New, message: too, lastTransitionTime: "2026-01-01T00:00:03Z"},
			{type: ReplicaFailure, status: "True", reason: Quota, message: exceeded}`)),
		"c3": leaf(t, deployment, "7", conditions(`{type: ReplicaFailure, status: "False", reason: "", message: ""},
			{type: Scheduled, status: "True", reason: Wrong, message: the leaf does not know}`)),
	}
	scheduled := metav1.Condition{Type: api.ConditionScheduled, Status: metav1.ConditionTrue, Reason: api.ReasonScheduled, LastTransitionTime: metav1.Unix(1767225600, 0)}
	scheduled.LastTransitionTime.Time = scheduled.LastTransitionTime.In(time.UTC)
	status := splitter.Aggregate(object(t, "{"+deployment+", metadata: {generation: 7}}"), leaves, scheduled)
	want := object(t, `{`+deployment+`, status: {conditions: [
		{type: Available, status: "False", reason: Less, message: "c2: no pods", lastTransitionTime: "2026-01-01T00:00:02Z"},
		{type: Progressing, status: "True", reason: New, message: "c1: up; c2: too", lastTransitionTime: "2026-01-01T00:00:03Z"},
		{type: ReplicaFailure, status: "True", reason: Quota, message: "c2: exceeded"},
		{type: Synced, status: "True", reason: Synced, message: ""},
		{type: Scheduled, status: "True", reason: Scheduled, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`)
	require.Equal(t, want.Object["status"], status)
}

func TestPlacementOf(t *testing.T) {
	three, two := int64(3), int64(2)
	l := leaf(t, deployment, "7", "{readyReplicas: 2}")
	require.NoError(t, unstructured.SetNestedField(l.Object, three, "spec", "replicas"))
	service := leaf(t, "apiVersion: v1, kind: Service", "7", "{}")
	require.Equal(t, api.Placement{"c1": {Replicas: &three, Ready: &two}, "c2": {}, "c3": {}},
		splitter.PlacementOf(map[string]*unstructured.Unstructured{"c1": l, "c2": service, "c3": nil}))
}

func TestIsFinished(t *testing.T) {
	for text, want := range map[string]bool{
		"{apiVersion: batch/v1, kind: Job}": false,
		"{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: Suspended, status: 'True'}]}}":                   false,
		"{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: Complete, status: 'False'}]}}":                   false,
		"{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: X}, {type: Complete, status: 'True'}]}}":         true,
		"{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: Failed, status: 'True'}]}}":                      true,
		"{apiVersion: example.com/v1, kind: Job, status: {conditions: [{type: Complete, status: 'True'}]}}":              false,
		"{apiVersion: apps/v1, kind: Deployment, status: {conditions: [{type: Complete, status: 'True'}], replicas: 1}}": false,
	} {
		require.Equal(t, want, splitter.IsFinished(object(t, text)), text)
	}
}

// A pod may be disrupted if it may be in any cluster, as the sum of the status says.
func TestADisruptionIsAllowedAnywhere(t *testing.T) {
	budget := func(allowed int, status string) *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`{apiVersion: policy/v1, kind: PodDisruptionBudget, status: {disruptionsAllowed: %d, conditions: [
			{type: DisruptionAllowed, status: "%s", reason: X, message: ""}]}}`, allowed, status))
	}
	root := object(t, "{apiVersion: policy/v1, kind: PodDisruptionBudget}")
	for second, want := range map[string]string{"True": "True", "False": "False"} {
		status := splitter.Aggregate(root, map[string]*unstructured.Unstructured{"c1": budget(0, "False"), "c2": budget(len(second)%5, second)})
		require.Equal(t, want, status["conditions"].([]any)[0].(map[string]any)["status"])
		require.EqualValues(t, len(second)%5, status["disruptionsAllowed"])
	}
}

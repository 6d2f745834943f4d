//go:build integration

package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// endingPod is a pod of a workload that was told to end, on a node that does not exist: nothing ends it but the test.
func (f *fixture) endingPod(r *Runtime, workload *unstructured.Unstructured, name string, grace, sleep int64) {
	f.t.Helper()
	match, _, err := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	require.NoError(f.t, err)
	c := corev1.Container{Name: "kcp", Image: "kcp"}
	if sleep > 0 {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: sleep}}}
	}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: match},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{c}, NodeName: "nowhere", TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: new(false),
		},
	})
	require.NoError(f.t, err)
	client := r.home.resource(pods())
	_, err = client.Create(f.t.Context(), &unstructured.Unstructured{Object: o}, metav1.CreateOptions{})
	require.NoError(f.t, err)
	require.NoError(f.t, client.Delete(f.t.Context(), name, metav1.DeleteOptions{}))
}

// A pod whose workload is gone does not serve on for a minute; what else it needs to end is left to it.
func TestPodsOfADeletedWorkloadDoNotLinger(t *testing.T) {
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	alpha := f.live(r, "Deployment", f.topology.Component(topology.ID("shard/alpha")).Object())
	f.endingPod(r, alpha, "serves-on", 120, 60)
	f.endingPod(r, alpha, "writes-its-data", 90, 0)
	f.endingPod(r, alpha, "is-quick", 35, 5)

	done := make(chan error, 1)
	go func() {
		done <- r.Delete(t.Context(), []plan.Item{{Ref: plan.RefOf(r.home.Name, alpha), Component: "shard/alpha", Live: alpha}})
	}()
	grace := func(name string) int64 {
		o, err := r.home.resource(pods()).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return 0
		}
		return *o.GetDeletionGracePeriodSeconds()
	}
	require.Eventually(t, func() bool { return grace("serves-on") == hurriedGrace }, time.Minute, 50*time.Millisecond)
	require.EqualValues(t, 90, grace("writes-its-data"))
	require.EqualValues(t, 35, grace("is-quick"))

	for _, name := range []string{"serves-on", "writes-its-data", "is-quick"} { // as the kubelet does
		require.Empty(t, done, "Delete waits until all are gone")
		require.NoError(t, r.home.resource(pods()).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	}
	require.NoError(t, <-done)
}

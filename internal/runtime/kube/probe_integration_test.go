package kube

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/facts"
)

// probeOf is a probe with the pods of the root shard.
func (f *fixture) probeOf(t *testing.T) check.Probe {
	t.Helper()
	p := check.Probe{Addresses: []check.ProbeAddress{{Address: "root.example.com:6443"}}}
	for _, o := range renderNew(t, f.topology) {
		if template, ok, _ := unstructured.NestedMap(o.Object, "spec", "template"); ok && o.Component == "root-shard" {
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(template, &p.Pod))
		}
	}
	require.NotEmpty(t, p.Pod.Spec.Containers)
	return p
}

func (f *fixture) reach(t *testing.T, top *topology.Topology) ([]check.Answer, error) {
	t.Helper()
	r := f.runtime(top)
	return facts.New(t.Context(), r.clusters.home, f.topology, time.Now).Reach(t.Context(), f.probeOf(t))
}

// podNames returns the names of the pods of probes.
func podNames(ctx context.Context, r *Runtime) ([]string, error) {
	pods, err := r.clusters.home.Pods(cluster.Quiet(ctx), topology.LabelPurpose+"="+topology.PurposeReachability)
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out, err
}

// The pod of a probe satisfies the strictest pod security, and it is gone after a run, whatever has become of it. No
// node runs here, so the test says what a kubelet would report.
func TestProbeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	admin := f.runtime(f.topology)
	f.createNamespace(admin)
	f.label(t, admin, "pod-security.kubernetes.io/enforce", "restricted")
	seen := make(chan *corev1.Pod, 1)
	go func() { seen <- f.failPod(t.Context(), admin) }()
	_, err := f.reach(t, f.topology)
	require.ErrorIs(t, err, check.ErrUnknown)
	require.ErrorContains(t, err, "does not start: ErrImagePull: no such image")
	pod := <-seen
	require.NotNil(t, pod)
	require.Equal(t, "demo", pod.Labels[topology.LabelSetup])
	require.NotNil(t, pod.Spec.ActiveDeadlineSeconds)
	left, err := podNames(t.Context(), admin)
	require.NoError(t, err)
	require.Empty(t, left)
}

// failPod waits for the pod of a probe, and reports that its image does not exist.
func (f *fixture) failPod(ctx context.Context, r *Runtime) *corev1.Pod {
	pods := r.clusters.home.Resource(kind.Pods)
	for ctx.Err() == nil {
		l, err := pods.List(ctx, metav1.ListOptions{LabelSelector: topology.LabelPurpose + "=" + topology.PurposeReachability})
		if err != nil || len(l.Items) == 0 {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		o := &l.Items[0]
		o.Object["status"] = map[string]any{"phase": "Pending", "containerStatuses": []any{map[string]any{
			"name": "probe", "image": "x", "imageID": "", "ready": false, "restartCount": int64(0),
			"state": map[string]any{"waiting": map[string]any{"reason": "ErrImagePull", "message": "no such image"}},
		}}}
		if _, err = pods.UpdateStatus(ctx, o, metav1.UpdateOptions{}); err != nil {
			continue
		}
		pod := &corev1.Pod{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod) != nil {
			return nil
		}
		return pod
	}
	return nil
}

// The pod that an interrupted run has left behind is removed by the next one, but not that of a run under way.
func TestProbeRemovesLeftovers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	admin := f.runtime(f.topology)
	f.createNamespace(admin)
	for _, name := range []string{"left", "under-way"} {
		f.create(t, admin, "v1", "Pod", "pods", name, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{
				topology.LabelSetup: "demo", topology.LabelPurpose: topology.PurposeReachability,
			}},
			"spec": map[string]any{"automountServiceAccountToken": false, "containers": []any{map[string]any{"name": "x", "image": "x"}}},
		})
	}
	f.setStatus(t, admin, "pods", "left", map[string]any{"phase": "Failed", "reason": "DeadlineExceeded"})
	looker := f.parse(small, "looker")
	_, err := f.reach(t, looker)
	require.ErrorContains(t, err, "not allowed", "the user may not delete pods")

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	probe, ended := f.probeOf(t), make(chan error, 1)
	go func() {
		_, err := facts.New(ctx, admin.clusters.home, f.topology, time.Now).Reach(ctx, probe)
		ended <- err
	}()
	require.Eventually(t, func() bool {
		now, err := podNames(t.Context(), admin)
		return err == nil && len(now) == 2 && slices.Contains(now, "under-way") && !slices.Contains(now, "left")
	}, time.Minute, 20*time.Millisecond, "the leftover makes room for the pod of the probe")
	interrupt()
	require.ErrorIs(t, <-ended, context.Canceled, "no node starts it")
	left, err := podNames(t.Context(), admin)
	require.NoError(t, err)
	require.Equal(t, []string{"under-way"}, left)
}

func TestProbeWithoutNamespace(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	_, err := f.reach(t, f.topology)
	require.ErrorIs(t, err, check.ErrUnknown)
	require.ErrorContains(t, err, "Namespace/"+f.namespace+" does not exist yet")
}

// Only runs that create pods need the permission.
func TestPermissionToProbe(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	f.createNamespace(f.runtime(f.topology))
	looker := f.runtime(f.parse(small, "looker"))
	ctx := cluster.Quiet(t.Context())
	err := facts.MayApply(ctx, looker.clusters.home, nil, true)
	require.ErrorContains(t, err, "create pods in namespace "+f.namespace)
	err = facts.MayApply(ctx, looker.clusters.home, nil, false)
	require.NotContains(t, err.Error(), "create pods in namespace")
}

package framework

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// syncer is the name of the Deployment of the syncer of c2.
func (f *Fleet) syncer() string { return f.Name + "-syncer-c2" }

// Pulls requires that the syncer of c2 runs there, and that commands know it as any other component.
func (f *Fleet) Pulls(t *testing.T) {
	pod := f.syncerPod(t)
	f.condition(t, "c2", "HeartbeatHealthy", "True")
	f.becomes(t, rootCompute, "cluster/c2", ".status.syncer.mode", string(v1alpha1.SyncModePull))
	require.Empty(t, f.read(t, rootCompute, "cluster/c2", ".spec.kubeconfigSecretRef"))
	Eventually(t.Context(), t, func() error {
		holder, err := f.tryRead(t, rootCompute, "cluster/c2", ".status.syncer.holder")
		if err == nil && !strings.Contains(holder, pod.Name) {
			err = fmt.Errorf("the syncer is %q, not %s", holder, pod.Name)
		}
		return err
	})
	require.NotEmpty(t, f.read(t, rootCompute, "cluster/c2", ".status.lastHeartbeatTime"))
	f.memory(t, "c2", api.NamespaceSyncer, f.syncer())

	Eventually(t.Context(), t, func() error {
		log, err := f.Kcpctl(t, "logs", "cluster/c2").Output()
		if err == nil && !strings.Contains(log, "Watching") {
			err = fmt.Errorf("the syncer has logged %s", log)
		}
		return err
	})
	// A shard that has just got its first binding does not serve the APIs yet, so that the syncer is not ready for a
	// moment.
	f.BecomesReady(t)
	f.Passes(t, nil, "KCP101", "KCP114", "KCP152", "KCP155")
	f.Passes(t, []string{"--pre"}, "KCP024", "KCP052")
}

// syncerPod returns the pod of the syncer of c2, when Kubernetes finds it ready. It was never restarted. It is not
// ready while kcp does not serve the objects of a new workspace yet.
func (f *Fleet) syncerPod(t *testing.T) (pod corev1.Pod) {
	t.Helper()
	Eventually(t.Context(), t, func() error {
		var list corev1.PodList
		get := f.On("c2", "get", "pods", "--namespace", api.NamespaceSyncer, "--selector", "kcpctl.dev/setup="+f.Name, "--output", "json")
		if err := get.Run(t.Context(), t).Decode(&list); err != nil {
			return err
		}
		if len(list.Items) != 1 || len(list.Items[0].Status.ContainerStatuses) != 1 || !list.Items[0].Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("the syncer of c2 is not ready: %d pods", len(list.Items))
		}
		pod = list.Items[0]
		return nil
	})
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount, pod.Status)
	return pod
}

// Renews renews the certificate of the syncer, which goes on.
func (f *Fleet) Renews(t *testing.T) {
	certificate := func() string {
		t.Helper()
		r := f.On("c2", "get", "secret", f.syncer()+"-client", "--namespace", api.NamespaceSyncer, "--output", `jsonpath={.data.tls\.crt}`).Run(t.Context(), t).OK(t)
		require.NotEmpty(t, r.Stdout)
		return r.Stdout
	}
	pod, before := f.syncerPod(t), certificate()
	f.Certs(t, "renew", "cluster/c2").OK(t)
	require.NotEqual(t, before, certificate())
	require.Equal(t, pod.UID, f.syncerPod(t).UID, "it is another pod")
}

// LeavesCluster removes c2. Nothing of the setup is left in it.
func (f *Fleet) LeavesCluster(t *testing.T) {
	f.Sub(t, "cluster", "remove", "c2", "--yes").OK(t)
	f.Remain(t, "c2")
}

// LeavesNothing removes the setup. Its accounts and roles in the clusters go too.
func (f *Fleet) LeavesNothing(t *testing.T) {
	LeavesNothing(t, f.Setup)
	f.Remain(t, "c1")
	f.Remain(t, "c2")
}

// Remain waits until a cluster has none of the objects with the name of the setup.
func (f *Fleet) Remain(t *testing.T, cluster string) {
	t.Helper()
	kinds := "namespaces,deployments,pods,serviceaccounts,secrets,configmaps,leases,roles,rolebindings,clusterroles,clusterrolebindings"
	Eventually(t.Context(), t, func() error {
		all, err := f.On(cluster, "get", kinds, "--all-namespaces", "--output", "name").Run(t.Context(), t).Output()
		if err != nil {
			return err
		}
		for object := range strings.Lines(all) {
			if strings.Contains(object, f.Name) {
				return fmt.Errorf("%s is on %s", strings.TrimSpace(object), cluster)
			}
		}
		return nil
	})
}

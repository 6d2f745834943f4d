//go:build e2e && long

package e2e

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
func (f *fleet) syncer() string { return f.name + "-syncer-c2" }

// pulls requires that the syncer of c2 runs there, and that commands know it as any other component.
func (f *fleet) pulls(t *testing.T) {
	pod := f.syncerPod(t)
	f.condition(t, "c2", "HeartbeatHealthy", "True")
	f.becomes(t, rootCompute, "cluster/c2", ".status.syncer.mode", string(v1alpha1.SyncModePull))
	require.Empty(t, f.read(t, rootCompute, "cluster/c2", ".spec.kubeconfigSecretRef"))
	eventually(t.Context(), t, func() error {
		holder, err := f.tryRead(t, rootCompute, "cluster/c2", ".status.syncer.holder")
		if err == nil && !strings.Contains(holder, pod.Name) {
			err = fmt.Errorf("the syncer is %q, not %s", holder, pod.Name)
		}
		return err
	})
	require.NotEmpty(t, f.read(t, rootCompute, "cluster/c2", ".status.lastHeartbeatTime"))
	f.memory(t, "c2", api.NamespaceSyncer, f.syncer())

	eventually(t.Context(), t, func() error {
		log, err := f.kcpctl(t, "logs", "cluster/c2").output()
		if err == nil && !strings.Contains(log, "Watching") {
			err = fmt.Errorf("the syncer has logged %s", log)
		}
		return err
	})
	// A shard that has just got its first binding does not serve the APIs yet, so that the syncer is not ready for a
	// moment.
	f.becomesReady(t)
	f.passes(t, nil, "KCP101", "KCP114", "KCP152", "KCP155")
	f.passes(t, []string{"--pre"}, "KCP024", "KCP052")
}

// syncerPod returns the pod of the syncer of c2, when Kubernetes finds it ready. It was never restarted. It is not
// ready while kcp does not serve the objects of a new workspace yet.
func (f *fleet) syncerPod(t *testing.T) (pod corev1.Pod) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		var list corev1.PodList
		get := f.on("c2", "get", "pods", "--namespace", api.NamespaceSyncer, "--selector", "kcpctl.dev/setup="+f.name, "--output", "json")
		if err := get.run(t.Context(), t).decode(&list); err != nil {
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

// renews renews the certificate of the syncer, which goes on.
func (f *fleet) renews(t *testing.T) {
	certificate := func() string {
		t.Helper()
		r := f.on("c2", "get", "secret", f.syncer()+"-client", "--namespace", api.NamespaceSyncer, "--output", `jsonpath={.data.tls\.crt}`).run(t.Context(), t).ok(t)
		require.NotEmpty(t, r.stdout)
		return r.stdout
	}
	pod, before := f.syncerPod(t), certificate()
	f.certs(t, "renew", "cluster/c2").ok(t)
	require.NotEqual(t, before, certificate())
	require.Equal(t, pod.UID, f.syncerPod(t).UID, "it is another pod")
}

// leavesCluster removes c2. Nothing of the setup is left in it.
func (f *fleet) leavesCluster(t *testing.T) {
	f.sub(t, "cluster", "remove", "c2", "--yes").ok(t)
	f.remain(t, "c2")
}

// leavesNothing removes the setup. Its accounts and roles in the clusters go too.
func (f *fleet) leavesNothing(t *testing.T) {
	leavesNothing(t, f.setup)
	f.remain(t, "c1")
	f.remain(t, "c2")
}

// remain waits until a cluster has none of the objects with the name of the setup.
func (f *fleet) remain(t *testing.T, cluster string) {
	t.Helper()
	kinds := "namespaces,deployments,pods,serviceaccounts,secrets,configmaps,leases,roles,rolebindings,clusterroles,clusterrolebindings"
	eventually(t.Context(), t, func() error {
		all, err := f.on(cluster, "get", kinds, "--all-namespaces", "--output", "name").run(t.Context(), t).output()
		if err != nil {
			return err
		}
		for object := range strings.Lines(all) {
			if strings.Contains(object, f.name) {
				return fmt.Errorf("%s is on %s", strings.TrimSpace(object), cluster)
			}
		}
		return nil
	})
}

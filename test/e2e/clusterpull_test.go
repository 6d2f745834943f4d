//go:build e2e && long

package e2e

import (
	"encoding/json"
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
	for field, want := range map[string]string{
		".status.syncer.mode": string(v1alpha1.SyncModePull), `.status.conditions[?(@.type=="HeartbeatHealthy")].status`: "True", ".spec.kubeconfigSecretRef": "",
	} {
		require.Equal(t, want, f.read(t, rootCompute, "cluster/c2", field), field)
	}
	require.Contains(t, f.read(t, rootCompute, "cluster/c2", ".status.syncer.holder"), pod.Name)
	require.NotEmpty(t, f.read(t, rootCompute, "cluster/c2", ".status.lastHeartbeatTime"))
	f.memory(t, "c2", api.NamespaceSyncer, f.syncer())

	require.Contains(t, f.kcpctl(t, "logs", "cluster/c2").ok(t).stdout, "Watching")
	// A shard that has just got its first binding does not serve the APIs yet, so that the syncer is not ready for a
	// moment.
	eventually(t.Context(), t, func() error {
		if st := f.status(t); !st.Ready {
			return fmt.Errorf("%v", st)
		}
		return nil
	})
	for _, args := range [][]string{nil, {"--pre"}} {
		r := report{}
		eventually(t.Context(), t, func() error {
			if r = f.check(t, args...); !r.Passed {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
		for _, id := range map[bool][]string{true: {"KCP101", "KCP114", "KCP152", "KCP155"}, false: {"KCP024", "KCP052"}}[args == nil] {
			status, cause := r.of(id)
			require.Equal(t, "ok", status, "%s: %s", id, cause)
		}
	}
}

// syncerPod returns the pod of the syncer of c2, when Kubernetes finds it ready. It was never restarted. It is not
// ready while kcp does not serve the objects of a new workspace yet.
func (f *fleet) syncerPod(t *testing.T) (pod corev1.Pod) {
	t.Helper()
	eventually(t.Context(), t, func() error {
		var list corev1.PodList
		r := f.on("c2", "get", "pods", "--namespace", api.NamespaceSyncer, "--selector", "kcpctl.dev/setup="+f.name, "--output", "json").run(t.Context(), t).ok(t)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
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
		r := f.on(cluster, "get", kinds, "--all-namespaces", "--output", "name").run(t.Context(), t).ok(t)
		for object := range strings.Lines(r.stdout) {
			if strings.Contains(object, f.name) {
				return fmt.Errorf("%s is on %s", strings.TrimSpace(object), cluster)
			}
		}
		return nil
	})
}

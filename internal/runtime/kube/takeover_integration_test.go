package kube

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/operator"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/adopt"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// taking takes over RootShard root of kcp-operator.
const taking = `spec:
  clusters: [{name: eu, kubeconfig: %q, namespace: %s}]
  rootShard: {aliases: [root-kcp]}
  shards: [{name: alpha, aliases: [alpha-shard-kcp]}]
  frontProxies: [{name: main, aliases: [main-front-proxy]}]
  takeOver: {rootShard: root}
`

func operatorAPI(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: operator.Group, Version: operator.Version, Resource: name}
}

// installOperatorAPIs adds the APIs of kcp-operator, with any content.
func (f *fixture) installOperatorAPIs(r *Runtime) {
	f.t.Helper()
	crds := r.clusters.home.Dynamic.Resource(kind.CustomResourceDefinition.GVR())
	var names []string
	for _, api := range operator.Resources {
		names = append(names, api.Name+"."+operator.Group)
	}
	apiserver.Remove(f.t, crds, names...)
	for i, api := range operator.Resources {
		_, err := crds.Create(f.t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": names[i]},
			"spec": map[string]any{
				"group": operator.Group, "scope": "Namespaced", "names": map[string]any{
					"kind": api.Kind, "listKind": api.Kind +
						"List", "plural": api.Name, "singular": strings.ToLower(api.Kind),
				},
				"versions": []any{map[string]any{
					"name": operator.Version, "served": true, "storage": true, "schema": map[string]any{
						"openAPIV3Schema": map[string]any{"type": "object",
							"x-kubernetes-preserve-unknown-fields": true},
					},
				}},
			},
		}}, metav1.CreateOptions{})
		require.NoError(f.t, err)
	}
	for _, api := range operator.Resources {
		require.Eventually(f.t, func() bool {
			_, err := r.clusters.home.Resource(operatorAPI(api.Name)).List(f.t.Context(), metav1.ListOptions{})
			return err == nil
		}, time.Minute, 100*time.Millisecond)
	}
}

// operated creates an object of kcp-operator, with its Service and its Deployment. At the end of the test it loses its
// finalizers, for which its CustomResourceDefinition would wait.
func (f *fixture) operated(r *Runtime, kindName, resource, name, root string, finalizers ...string) {
	f.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": operator.Group + "/" +
			operator.Version, "kind": kindName, "metadata": map[string]any{"name": name},
		"spec": map[string]any{"rootShard": map[string]any{"ref": map[string]any{"name": root}}},
	}}
	o.SetFinalizers(finalizers)
	client := r.clusters.home.Resource(operatorAPI(resource))
	f.t.Cleanup(func() {
		_, _ = client.Patch(context.WithoutCancel(f.t.Context()), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	created, err := client.Create(f.t.Context(), o, metav1.CreateOptions{})
	require.NoError(f.t, err)
	owners := []any{map[string]any{
		"apiVersion": operator.Group + "/" +
			operator.Version, "kind": kindName, "name": name, "uid": string(created.GetUID()),
	}}
	service := operator.Service(kindName, name)
	labels := map[string]any{"app": service}
	f.as("kcp-operator", r, kind.Service, service, map[string]any{
		"metadata": map[string]any{"ownerReferences": owners},
		"spec": map[string]any{"selector": labels, "ports": []any{map[string]any{"name": "https",
			"port": int64(6443)}}},
	})
	f.as("kcp-operator", r, kind.Deployment, service, map[string]any{
		"metadata": map[string]any{"ownerReferences": owners},
		"spec": map[string]any{"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "kcp", "image": "kcp"}}},
			}},
	})
}

// aRunningOperator restores the finalizer of a Shard, as kcp-operator does, until stop is called.
func (f *fixture) aRunningOperator(r *Runtime, shard string) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		shards := r.clusters.home.Resource(operatorAPI("shards"))
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			o, err := shards.Get(ctx, shard, metav1.GetOptions{})
			if err == nil && len(o.GetFinalizers()) == 0 {
				_, _ = shards.Patch(ctx, shard, types.MergePatchType,
					[]byte(`{"metadata":{"finalizers":["operator.kcp.io/cleanup-shard"]}}`), metav1.PatchOptions{})
			}
		}
	})
	stop = func() { cancel(); done.Wait() }
	f.t.Cleanup(stop)
	return stop
}

// Two installations of kcp-operator in one namespace: only the one that the setup has taken over is removed, and not
// while kcp-operator runs.
func TestOneOfTwoInstallationsIsTakenOver(t *testing.T) {
	f := newFixture(t, taking)
	r := f.runtime(f.topology)
	f.createNamespace(r)
	f.installOperatorAPIs(r)
	for _, root := range []string{"root", "a"} {
		f.operated(r, "RootShard", "rootshards", root, root)
	}
	f.operated(r, "Shard", "shards", "alpha", "root", "operator.kcp.io/cleanup-shard")
	f.operated(r, "Shard", "shards", "a1", "a", "operator.kcp.io/cleanup-shard")
	f.operated(r, "FrontProxy", "frontproxies", "main", "root")
	item := func(name string) []plan.Item {
		return []plan.Item{{Ref: r.clusters.home.Ref(kind.Service, name), Live: f.live(r, kind.Service, name)}}
	}
	require.NoError(t, r.Belong(t.Context(), item("alpha-shard-kcp")))
	require.ErrorContains(t, r.Belong(t.Context(), item("a1-shard-kcp")), "is that of Shard a1 of RootShard a")
	_, err := r.Inherited(t.Context())
	require.ErrorContains(t, err, "root-")

	i, origin := adopt.Of(r.clusters.home, time.Now), operator.Origin{Name: "root"}
	set := f.topology.ApplySet(f.topology.Home)
	_, err = i.Remains(t.Context(), origin, set)
	require.ErrorContains(t, err, "Shard alpha is not part of the setup", "before up")
	f.up(r, run.PlanOptions{Force: true})

	remains, err := i.Remains(t.Context(), origin, set)
	require.NoError(t, err)
	require.Len(t, remains.Servers, 3)
	stop := f.aRunningOperator(r, "alpha")
	require.ErrorContains(t, i.Release(t.Context(), remains), "it has restored the finalizer of Shard alpha")
	stop()
	require.NotNil(t, f.live(r, kind.Deployment, "alpha-shard-kcp"), "nothing was removed")
	i.Settle = time.Second // no kcp-operator runs any more

	remains, err = i.Remains(t.Context(), origin, set)
	require.NoError(t, err)
	for _, step := range []func(context.Context, *adopt.Remains) error{i.Release, i.StopServers, i.RemoveObjects} {
		require.NoError(t, step(t.Context(), remains))
	}
	for _, name := range []string{"root-kcp", "alpha-shard-kcp", "main-front-proxy"} {
		require.Empty(t, f.live(r, kind.Service, name).GetOwnerReferences(), name)
		require.Equal(t, topology.ManagedBy, f.live(r, kind.Service, name).GetLabels()["app.kubernetes.io/managed-by"])
	}
	for name, left := range map[string]bool{"alpha": false, "a1": true} {
		_, err := r.clusters.home.Resource(operatorAPI("shards")).Get(t.Context(), name, metav1.GetOptions{})
		require.Equal(t, !left, apierrors.IsNotFound(err), name)
	}
	require.NotNil(t, f.live(r, kind.Deployment, "a1-shard-kcp"))
	remains, err = i.Remains(t.Context(), origin, set)
	require.NoError(t, err)
	require.True(t, remains.Empty())
}

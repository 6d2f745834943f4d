package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeapi"
	"github.com/kcpctl/kcpctl/internal/workload/sync/syncer"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// startSyncer runs a syncer from a kcp, which it returns, to the API server, until the test ends.
func (m *member) startSyncer(setup string) *fakeapi.Server {
	m.Helper()
	kcp := fakeapi.New(m)
	system, err := m.Resource(namespaces).Get(m.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	require.NoError(m, err)
	kcp.Apply(m, "root:compute", "apis/workloads.kcp.dev/v1alpha1/clusters", fmt.Sprintf("{apiVersion: workloads.kcp.dev/v1alpha1, "+
		"kind: Cluster, metadata: {name: c1}, status: {uid: %s, apis: [{group: apps, resource: deployments, version: v1, state: Published}, "+
		"{group: apps, resource: statefulsets, version: v1, state: Published}]}}", system.GetUID()))
	kcp.Apply(m, "root:compute", "apis/apis.kcp.io/v1alpha1/apiexportendpointslices", "{apiVersion: apis.kcp.io/v1alpha1, "+
		"kind: APIExportEndpointSlice, metadata: {name: cluster-c1}, status: {endpoints: [{url: '"+kcp.URL+"/services/apiexport/x/cluster-c1'}]}}")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- syncer.Run(ctx, syncer.Options{
			KCP: &rest.Config{Host: kcp.URL}, Workspace: "root:compute", Physical: m.cfg, Cluster: "c1", Setup: setup, Now: time.Now,
		})
	}()
	m.Cleanup(func() {
		cancel()
		require.NoError(m, <-done)
	})
	return kcp
}

// Fields that the API server has set by itself do not prevent a change that they do not fit to. What the user does not
// change stays, also what others have set.
func TestAnotherStrategyReplacesDefaults(t *testing.T) {
	apiserver.Need(t)
	m := newMember(t)
	setup := server.Unique("demo")
	kcp := m.startSyncer(setup)
	workspace := server.Unique("ws") // a workspace with objects of another setup would not be synced
	namespace := api.DownstreamNamespace(setup, workspace, "shop")
	for _, tc := range []struct{ resource, kind, first, second, field string }{
		{"deployments", "Deployment", "", "strategy: {type: Recreate}, replicas: 3, ", "strategy"},
		{"statefulsets", "StatefulSet", "serviceName: s, ", "serviceName: s, updateStrategy: {type: OnDelete}, replicas: 3, ", "updateStrategy"},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			path := "apis/apps/v1/" + tc.resource
			r := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: tc.resource}
			apply := func(spec string) {
				kcp.Apply(t, workspace, path, fmt.Sprintf("{apiVersion: apps/v1, kind: %s, metadata: {name: web--c1, namespace: shop, labels: "+
					"{workloads.kcp.dev/cluster: c1}, annotations: {workloads.kcp.dev/name: web}}, spec: {%sselector: {matchLabels: {a: b}}, "+
					"template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}", tc.kind, spec))
			}
			live := func() *unstructured.Unstructured {
				o, err := m.Resource(r).Namespace(namespace).Get(t.Context(), "web", metav1.GetOptions{})
				require.NoError(t, err)
				return o
			}
			synced := func(replicas int64) {
				t.Helper()
				require.Eventually(t, func() bool {
					leaf := kcp.Get(workspace, path, "shop", "web--c1")
					c := api.ConditionIn(leaf, api.ConditionSynced)
					if c == nil || c.Status != metav1.ConditionTrue {
						return false
					}
					n, _, _ := unstructured.NestedInt64(live().Object, "spec", "replicas")
					return n == replicas
				}, 30*time.Second, 100*time.Millisecond, "synced")
			}
			apply(tc.first)
			synced(1)
			strategy, _, _ := unstructured.NestedMap(live().Object, "spec", tc.field)
			require.Contains(t, strategy, "rollingUpdate", "the API server sets it")
			apply(tc.second)
			synced(3)
			strategy, _, _ = unstructured.NestedMap(live().Object, "spec", tc.field)
			require.NotContains(t, strategy, "rollingUpdate")
			apply(tc.first + tc.field + ": null, replicas: 2, ")
			synced(2)
			strategy, _, _ = unstructured.NestedMap(live().Object, "spec", tc.field)
			require.Contains(t, strategy, "rollingUpdate", "the user says nothing about it any longer")
		})
	}
}

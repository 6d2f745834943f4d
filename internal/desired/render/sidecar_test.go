package render_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// sidecar is a container that podTemplate adds. Strategic merge puts it first.
const sidecar = `{spec: {containers: [{name: proxy, image: "proxy:v9", env: [{name: HTTPS_PROXY, value: other}],
  args: [--etcd-servers=https://other, --data-dir=/other, --embedded-etcd-directory=/other, --client-ca-file=/other]}]}}`

// withSidecar is a setup with components of all kinds that have pods, each with podTemplate.
func withSidecar(podTemplate string) string {
	return fmt.Sprintf(`spec:
  defaults: {podTemplate: %[1]s}
  etcd: {managed: {podTemplate: %[1]s}}
  cacheServer: {}
  shards: [{name: alpha}, {name: beta, etcd: {embedded: {}}}]
  virtualWorkspaces: [{name: alpha, shard: alpha}]
  agents:
  - {name: widgets, workspace: "root:widgets", podTemplate: %[1]s,
     publishedResources: [{name: widgets, spec: {resource: {kind: Widget, apiGroup: example.com, versions: [v1]}}}]}
  workloads: {podTemplate: %[1]s}
`, podTemplate)
}

// What kcpctl reads of a pod is of the container that it renders, also if another one comes first: where a component
// holds its data, what it runs, and which certificates it trusts (rendering proves that).
func TestSidecars(t *testing.T) {
	_, _, alone := rendered(t, withSidecar("{}"))
	top, _, objects := rendered(t, withSidecar(sidecar))
	seen := 0
	for i, o := range objects {
		pod, ok := podOf(t, o)
		if !ok {
			continue
		}
		seen++
		k := o.Component.Kind()
		require.Equal(t, "proxy", pod.Spec.Containers[0].Name, o.Component)
		own := record.Container(k, o.Unstructured)
		require.NotNil(t, own, o.Component)
		require.Equal(t, k.Container(), own.Name)
		require.Equal(t, record.Container(k, alone[i].Unstructured).Args, own.Args)
		require.Equal(t, record.ImageTag(k, alone[i].Unstructured), record.ImageTag(k, o.Unstructured))
		want, holds := record.Of("demo", o.Component, o.Cluster, alone[i].Unstructured)
		got, _ := record.Of("demo", o.Component, o.Cluster, o.Unstructured)
		require.Equal(t, want, got)
		require.Equal(t, k.HoldsData(), holds)
	}
	require.Equal(t, len(top.Running()), seen)
}

// The volumes of a component, and the pod that restores one, too.
func TestVolumesWithSidecars(t *testing.T) {
	top := topologytest.Build(t, withSidecar(sidecar))
	for _, id := range []topology.ID{"etcd/alpha", "shard/beta"} {
		v, err := render.VolumesOf(top, top.Component(id))
		require.NoError(t, err)
		require.Len(t, v.Claims, 1, id)
		require.Equal(t, "data", v.Mount.Name, id)
		pod, err := render.Restorer{Volumes: v, Claim: v.Claims[0].GetName(), Image: v1alpha1.Image{Repository: "kcpctl"}}.Pod()
		require.NoError(t, err)
		require.Len(t, pod.Spec.Containers, 1)
		require.Empty(t, pod.Spec.Containers[0].Env)
		require.True(t, *pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
	}
}

// A container without others is kcpctl's, whatever its name is.
func TestOwnContainer(t *testing.T) {
	require.Equal(t, 1, topology.Shard.OwnContainer([]string{"etcd", "kcp"}))
	require.Equal(t, 0, topology.Etcd.OwnContainer([]string{"etcd", "kcp"}))
	require.Equal(t, 0, topology.Shard.OwnContainer([]string{"server"}))
	require.Equal(t, -1, topology.Shard.OwnContainer([]string{"one", "two"}))
	require.Equal(t, -1, topology.Shard.OwnContainer(nil))
	require.Nil(t, topology.Shard.ContainerOf(&corev1.PodSpec{}))
	require.Empty(t, topology.Kubeconfig.Container())
}

package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/internal/topology"
)

const pulled = `spec:
  external: {hostname: kcp.example.com}
  rootShard: {virtualWorkspaceURL: "https://root.example.com:6443"}
  workloads:
    apis: [deployments.apps, services]
    clusters:
    - {name: c1, context: eu}
    - {name: edge, context: edge, syncMode: Pull, labels: {region: us}, podTemplate: {spec: {priorityClassName: high}}}
`

// The objects of a syncer that runs in its physical cluster: on the cluster, and in the compute workspace.
func TestSyncer(t *testing.T) {
	top, state, objects := rendered(t, pulled)
	require.NoError(t, pki.Prove(top, state, now))
	var got strings.Builder
	for _, o := range objects {
		if o.Component != "cluster/edge" {
			continue
		}
		require.NoError(t, render.Strict(o), "%s %s", o.GetKind(), o.GetName())
		require.Equal(t, o.Workspace == "", o.Cluster == "edge")
		mask(o)
		text, err := o.YAML()
		require.NoError(t, err)
		got.WriteString("---\n" + string(text))
	}
	testutil.Golden(t, "syncer.yaml", []byte(got.String()))
}

// On this machine the syncer reads its credential for the physical cluster from files, which are issued when they are applied.
func TestLocalSyncer(t *testing.T) {
	top := topologytest.LocalOf(topologytest.Build(t, pulled).Setup)
	objects, err := render.Component(top, pkitest.Issue(t, top, now), top.Component("cluster/edge"))
	require.NoError(t, err)
	var token, deployment render.Object
	on := 0
	for _, o := range objects {
		switch {
		case o.Workspace == topology.OnPhysical("edge"):
			on++
		case o.GetName() == "demo-syncer-edge-token":
			token = o
		case o.GetKind() == "Deployment":
			deployment = o
		}
	}
	require.Equal(t, 4, on, "namespace, account, role and binding")
	require.Equal(t, "cluster/edge", token.GetAnnotations()[topology.AnnotationCredential])
	pod, ok := podOf(t, deployment)
	require.True(t, ok)
	require.Contains(t, strings.Join(pod.Spec.Containers[0].Args, " "), "/config/kubeconfig/physical.kubeconfig")
}

// A syncer that the user starts has the rights of one that runs in its cluster.
func TestSyncerThatTheUserStarts(t *testing.T) {
	inCompute := func(setup string) []any {
		_, _, objects := rendered(t, setup)
		var rights []any
		for _, o := range objects {
			if o.Workspace == "root:compute" && o.Component == "cluster/edge" && o.GroupVersionKind().Group == "rbac.authorization.k8s.io" {
				rights = append(rights, o.GetName(), o.Object["rules"], o.Object["roleRef"], o.Object["subjects"])
			}
		}
		return rights
	}
	rights := inCompute(strings.ReplaceAll(strings.ReplaceAll(pulled, "Pull", "None"), ", podTemplate: {spec: {priorityClassName: high}}", ""))
	require.NotEmpty(t, rights)
	require.Equal(t, inCompute(pulled), rights)
}

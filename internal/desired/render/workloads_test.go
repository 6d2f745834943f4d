package render_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
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
	require.NoError(t, render.Prove(top, state, now))
	var got strings.Builder
	for _, o := range objects {
		if o.Component != "cluster/edge" {
			continue
		}
		require.NoError(t, render.Strict(o), "%s %s", o.GetKind(), o.GetName())
		require.Equal(t, o.Workspace == "", o.Cluster == "edge")
		got.WriteString(masked(t, o))
	}
	testutil.Golden(t, "syncer.yaml", []byte(got.String()))
}

// On this machine the syncer reads its credential for the physical cluster from files, which are issued when they are
// applied.
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

// The Cluster object has what the setup file says about workspaces, as far as the syncer needs it.
func TestTenancyOfACluster(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  external: {hostname: kcp.example.com}
  rootShard: {virtualWorkspaceURL: "https://root.example.com:6443"}
  workloads:
    clusters:
    - name: c1
      context: eu
      workspaceSelector: {paths: [root:team]}
      maxCapacity: {cpu: 64}
      tenancy:
        objects: [{apiVersion: v1, kind: ResourceQuota, metadata: {name: team}, spec: {hard: {pods: 20}}}]
        pods: {priorityClasses: [batch], tolerationKeys: [example.com/tenants], nodeSelector: {pool: tenants}}
    - {name: c2, context: us, tenancy: {pods: {}}}
    - {name: c3, context: asia}
    - {name: edge, context: edge, syncMode: Pull, tenancy: {pods: {}}}
`)
	specs := map[string]any{}
	policies := map[string][]string{}
	for _, o := range objects {
		switch {
		case strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy"):
			require.NoError(t, render.Strict(o))
			policies[o.Workspace] = append(policies[o.Workspace], o.GetKind()+" "+o.GetName())
		case o.GetKind() == api.KindCluster:
			cluster, err := api.ClusterOf(o.Unstructured)
			require.NoError(t, err)
			require.NotNil(t, cluster)
			spec := maps.Clone(o.Object["spec"].(map[string]any))
			delete(spec, "syncMode")
			delete(spec, "kubeconfigSecretRef")
			specs[o.GetName()] = spec
		}
	}
	require.Equal(t, map[string]any{
		"c1": map[string]any{
			"workspaceSelector": map[string]any{"paths": []any{"root:team"}},
			"maxCapacity":       map[string]any{"cpu": "64"},
			"tenancy": map[string]any{
				"objects": []any{map[string]any{
					"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "team"},
					"spec": map[string]any{"hard": map[string]any{"pods": "20"}},
				}},
				"pods": map[string]any{"nodeSelector": map[string]any{"pool": "tenants"}},
			},
		},
		"c2": map[string]any{}, "c3": map[string]any{}, "edge": map[string]any{},
	}, specs)
	require.Equal(t, map[string][]string{
		"cluster/c1": {"ValidatingAdmissionPolicy pods.c1.demo.workloads.kcp.dev", "ValidatingAdmissionPolicyBinding pods.c1.demo.workloads.kcp.dev"},
		"cluster/c2": {"ValidatingAdmissionPolicy pods.c2.demo.workloads.kcp.dev", "ValidatingAdmissionPolicyBinding pods.c2.demo.workloads.kcp.dev"},
		"cluster/edge": {"ValidatingAdmissionPolicy pods.edge.demo.workloads.kcp.dev",
			"ValidatingAdmissionPolicyBinding pods.edge.demo.workloads.kcp.dev"},
	}, policies)
}

package controller_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
)

// In a compute workspace that was created again, the objects of workspaces stay those of the recorded setup: they do
// not run twice.
func TestSetupOfACreatedComputeWorkspace(t *testing.T) {
	k := newKCP(t)
	c1 := newCluster(t, "one", "1", "")
	k.add("c1", kubeconfig(c1.URL))
	crd, err := api.CRD()
	require.NoError(t, err)
	crd.SetLabels(map[string]string{api.LabelManagedBy: "kcpctl"})
	crd.SetAnnotations(map[string]string{api.AnnotationSetup: "first"})
	text, err := yaml.Marshal(crd.Object)
	require.NoError(t, err)
	k.Apply(t, compute, "apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(text))
	k.run()
	k.identify()
	k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "the cluster is ready")
	k.Apply(t, compute, "apis/apis.kcp.io/v1alpha1/apiexportendpointslices", fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata: {name: cluster-c1}
status: {endpoints: [{url: "%s/services/apiexport/xyz/cluster-c1"}]}`, k.URL))
	k.Apply(t, "1a", deployments, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {workloads.kcp.dev/cluster: c1}}
spec: {replicas: 2}`)
	k.eventually(func() bool {
		return c1.Get("", deployments, api.DownstreamNamespace("first", "1a", "shop"), "web") != nil
	}, "the leaf is in the namespace of the recorded setup")
	require.Nil(t, c1.Get("", deployments, api.DownstreamNamespace(compute, "1a", "shop"), "web"))
}

// A controller that has started before kcpctl up has written the ID uses no cluster. It ends, and starts with the ID.
func TestSetupThatIsWrittenLater(t *testing.T) {
	k := newKCP(t)
	c1 := newCluster(t, "one", "1", "")
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		done <- controller.Run(ctx, controller.Hurried(controller.Options{
			KCP: &rest.Config{Host: k.URL}, Workspace: compute, WorkspaceType: "workload", APIs: []schema.GroupResource{deploymentAPI},
			Holder: "test", Connect: connect.Content, Now: k.now, Probe: k.probe,
		}))
	}()
	const definitions, name = "apis/apiextensions.k8s.io/v1/customresourcedefinitions", "clusters.workloads.kcp.dev"
	k.eventually(func() bool { return k.Get(compute, definitions, "", name) != nil }, "the controller has started")
	k.Apply(t, compute, definitions, "{metadata: {name: "+name+", annotations: {workloads.kcp.dev/setup-id: first}}}")
	k.add("c1", kubeconfig(c1.URL))
	require.ErrorContains(t, <-done, "clusters are not used: the ID of the setup in physical clusters is first, and not "+compute)
	require.Empty(t, c1.Writes())
	require.Empty(t, k.Get(compute, clusters, "", "c1").GetAnnotations()[api.AnnotationSetup])
}

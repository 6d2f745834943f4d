package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// In a compute workspace that was created again, the objects of workspaces stay those of the setup: they do not run
// twice, whatever is written there.
func TestSetupOfACreatedComputeWorkspace(t *testing.T) {
	k := newKCP(t)
	k.setup = "first"
	c1 := newCluster(t, "one", "1", "")
	k.add("c1", kubeconfig(c1.URL))
	k.Apply(t, compute, clusters, "{metadata: {name: c1, annotations: {workloads.kcp.dev/setup-id: other}}}")
	k.serves("c1")
	k.run()
	k.identify()
	k.eventually(func() bool { return k.condition("c1", "Ready") == "True Ready" }, "the cluster is ready")
	k.leaf("web", "c1")
	k.eventually(func() bool { return in(c1, "first", "web") }, "the leaf is in the namespace of the setup")
	require.False(t, in(c1, compute, "web"))
	k.eventually(func() bool {
		return k.Get(compute, clusters, "", "c1").GetAnnotations()[api.AnnotationSetup] == "first"
	}, "syncers that read it there use it")
}

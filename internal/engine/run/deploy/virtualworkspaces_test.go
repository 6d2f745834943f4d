package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A shard that runs serves its virtual workspaces until their new server is ready: also if a run in between has failed.
func TestVirtualWorkspacesAreHandedOver(t *testing.T) {
	const shards = runtest.Minimal + "spec: {shards: [{name: alpha}], virtualWorkspaces: [{name: vr}"
	inWorld(t, shards+"]}", func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Topology = topologytest.Build(t, shards+", {name: va, shard: alpha}]}")
		w.Up.Topology = w.Topology
		w.Runtime.Becomes(w.Topology)
		w.Runtime.Edit("Deployment/kcp/demo-front-proxy-main", func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"edited": "yes"}) })
		w.Runtime.States("virtual-workspaces/va", ready.State{Replicas: 1, Reason: "it crashes", Stuck: true})
		_, err := w.Run(t)
		require.Error(t, err)
		require.Equal(t, -1, w.When("shard/alpha", run.Running, "applying"), "it serves its virtual workspaces itself")

		w.Runtime.States("virtual-workspaces/va", runtest.IsReady())
		w.MustRun(t)
		require.Less(t, w.When("virtual-workspaces/va", run.Done, ""), w.When("shard/alpha", run.Running, "applying"))
	})
}

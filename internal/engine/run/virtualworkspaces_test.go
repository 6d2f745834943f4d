package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// A shard that runs serves its virtual workspaces until their new server is ready: also if a run in between has failed.
func TestVirtualWorkspacesAreHandedOver(t *testing.T) {
	const shards = minimal + "spec: {shards: [{name: alpha}], virtualWorkspaces: [{name: vr}"
	inWorld(t, shards+"]}", func(t *testing.T, w *world) {
		w.mustRun(t)
		w.top = topologytest.Build(t, shards+", {name: va, shard: alpha}]}")
		w.up.Topology = w.top
		w.rt.Becomes(w.top)
		w.rt.Edit("Deployment/kcp/demo-front-proxy-main", func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"edited": "yes"}) })
		w.rt.States("virtual-workspaces/va", ready.State{Replicas: 1, Reason: "it crashes", Stuck: true})
		_, err := w.run(t)
		require.Error(t, err)
		require.Equal(t, -1, w.when("shard/alpha", run.Running, "applying"), "it serves its virtual workspaces itself")

		w.rt.States("virtual-workspaces/va", isReady())
		w.mustRun(t)
		require.Less(t, w.when("virtual-workspaces/va", run.Done, ""), w.when("shard/alpha", run.Running, "applying"))
	})
}

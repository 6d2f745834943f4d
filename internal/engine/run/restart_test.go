package run_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// restart limits the next run to a restart of components.
func (w *world) restart(ids ...topology.ID) { w.up.Options = run.UpOptions{Only: ids, Restart: ids} }

func TestRestartIsARollout(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		w.mustRun(t)
		canaries := len(w.rt.Kcp.Requests(fakekcp.CreateWorkspace))
		w.restart("front-proxy/main", "shard/beta", "shard/alpha")
		res := w.mustRun(t)
		require.Equal(t, "0 create, 3 change, 0 delete", res.Plan.Summary()[:len("0 create, 3 change, 0 delete")])
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply shard/alpha", "Apply shard/beta", "Apply front-proxy/main"},
			w.rt.Calls()[:6])
		require.Less(t, w.when("shard/alpha", run.Done, ""), w.when("shard/beta", run.Running, "applying"),
			"one after another")
		require.Less(t, w.when("shard/beta", run.Done, ""), w.when("front-proxy/main", run.Running, "applying"))
		require.Greater(t, len(w.rt.Kcp.Requests(fakekcp.CreateWorkspace)), canaries, "it is proven that all serves")

		time.Sleep(time.Second)
		w.restart("shard/alpha")
		require.Equal(t, 1, w.mustRun(t).Plan.Count(plan.Change), "it can be restarted again")
		w.up.Options = run.UpOptions{}
		require.Equal(t, 0, w.mustRun(t).Plan.Count(plan.Change))
		require.Empty(t, w.rt.Calls(), "the next up changes nothing")
	})
}

func TestRestartOfComponentsWhoseReplicasAreLeftToOthers(t *testing.T) {
	inWorld(t, minimal+"spec: {defaults: {replicas: null}, shards: [{name: alpha}]}\n", func(t *testing.T, w *world) {
		w.mustRun(t)
		w.restart("shard/alpha", "front-proxy/main")
		res := w.mustRun(t)
		require.Equal(t, 2, res.Plan.Count(plan.Change))
		for _, it := range res.Plan.Items {
			require.False(t, it.Action == plan.Change && !plan.LeavesReplicas(it.Want), it.Ref)
		}
	})
}

func TestRestartStopsAtTheFirstThatDoesNotServe(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.restart("shard/alpha", "shard/beta")
		stuck := waiting("CrashLoopBackOff")
		stuck.Stuck = true
		w.rt.States("shard/alpha", stuck)
		_, err := w.run(t)
		require.ErrorContains(t, err, "shard/alpha: not ready: CrashLoopBackOff")
		require.NotContains(t, w.rt.Calls(), "Apply shard/beta")

		w.rt.States("shard/alpha", ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1})
		w.restart("shard/beta")
		w.mustRun(t)
	})
}

func TestRestartCreatesNothing(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.use(topologytest.Build(t, sharded))
		w.restart("shard/alpha")
		_, err := w.run(t)
		requireError(t, err, clierr.Failed,
			"Deployment/kcp/demo-shard-alpha does not exist, so shard/alpha cannot be restarted; nothing was changed")
		require.Empty(t, w.rt.Calls())
	})
}

func TestRestartAppliesNoPendingEdit(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.restart("shard/alpha")
		w.up.Options.Unedited = []byte("an edit that changes no object")
		w.mustRun(t)

		w.use(topologytest.Build(t, minimal+"spec: {shards: [{name: alpha, replicas: 2}]}\n"))
		_, err := w.run(t)
		require.ErrorIs(t, err, run.ErrUnapplied)
		require.Empty(t, w.rt.Calls())
	})
}

// use makes the next runs ones of another setup.
func (w *world) use(top *topology.Topology) {
	w.top = top
	w.up.Topology = top
	w.rt.Use(top)
}

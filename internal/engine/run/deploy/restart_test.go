package deploy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/ready"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// restart limits the next run to a restart of components.
func (w *world) restart(ids ...topology.ID) { w.Up.Options = deploy.UpOptions{Only: ids, Restart: ids} }

func TestRestartIsARollout(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		canaries := len(w.Runtime.Kcp.Requests(fakekcp.CreateWorkspace))
		w.restart("front-proxy/main", "shard/beta", "shard/alpha")
		res := w.MustRun(t)
		require.Equal(t, "0 create, 3 change, 0 delete", res.Plan.Summary()[:len("0 create, 3 change, 0 delete")])
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply shard/alpha", "Apply shard/beta", "Apply front-proxy/main"},
			w.Runtime.Calls()[:6])
		require.Less(t, w.When("shard/alpha", run.Done, ""), w.When("shard/beta", run.Running, "applying"),
			"one after another")
		require.Less(t, w.When("shard/beta", run.Done, ""), w.When("front-proxy/main", run.Running, "applying"))
		require.Greater(t, len(w.Runtime.Kcp.Requests(fakekcp.CreateWorkspace)), canaries, "it is proven that all serves")

		time.Sleep(time.Second)
		w.restart("shard/alpha")
		require.Equal(t, 1, w.MustRun(t).Plan.Count(plan.Change), "it can be restarted again")
		w.Up.Options = deploy.UpOptions{}
		require.Equal(t, 0, w.MustRun(t).Plan.Count(plan.Change))
		require.Empty(t, w.Runtime.Calls(), "the next up changes nothing")
	})
}

func TestRestartOfComponentsWhoseReplicasAreLeftToOthers(t *testing.T) {
	inWorld(t, runtest.Minimal+"spec: {defaults: {replicas: null}, shards: [{name: alpha}]}\n", func(t *testing.T, w *world) {
		w.MustRun(t)
		w.restart("shard/alpha", "front-proxy/main")
		res := w.MustRun(t)
		require.Equal(t, 2, res.Plan.Count(plan.Change))
		for _, it := range res.Plan.Items {
			require.False(t, it.Action == plan.Change && !plan.LeavesReplicas(it.Want), it.Ref)
		}
	})
}

func TestRestartStopsAtTheFirstThatDoesNotServe(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.restart("shard/alpha", "shard/beta")
		stuck := runtest.Waiting("CrashLoopBackOff")
		stuck.Stuck = true
		w.Runtime.States("shard/alpha", stuck)
		_, err := w.Run(t)
		require.ErrorContains(t, err, "shard/alpha: not ready: CrashLoopBackOff")
		require.NotContains(t, w.Runtime.Calls(), "Apply shard/beta")

		w.Runtime.States("shard/alpha", ready.State{Ready: true, Replicas: 1, ReadyReplicas: 1})
		w.restart("shard/beta")
		w.MustRun(t)
	})
}

func TestRestartCreatesNothing(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.use(topologytest.Build(t, runtest.Sharded))
		w.restart("shard/alpha")
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed,
			"Deployment/kcp/demo-shard-alpha does not exist, so shard/alpha cannot be restarted; nothing was changed")
		require.Empty(t, w.Runtime.Calls())
	})
}

func TestRestartAppliesNoPendingEdit(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.restart("shard/alpha")
		w.Up.Options.Unedited = []byte("an edit that changes no object")
		w.MustRun(t)

		w.use(topologytest.Build(t, runtest.Minimal+"spec: {shards: [{name: alpha, replicas: 2}]}\n"))
		_, err := w.Run(t)
		require.ErrorIs(t, err, deploy.ErrUnapplied)
		require.Empty(t, w.Runtime.Calls())
	})
}

// use makes the next runs ones of another setup.
func (w *world) use(top *topology.Topology) {
	w.Topology = top
	w.Up.Topology = top
	w.Runtime.Use(top)
}

package deploy_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestAnUnreachableClusterIsNamedAndNothingIsWritten(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Lose("us")
		w.edit("root-shard")
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Failed, "cluster us, with etcd/beta, shard/beta, front-proxy/edge, cannot be reached; nothing was changed: "+runtest.ErrCut.Error())
		require.Equal(t, "check the network; to leave it out for now, pass --allow unreachable=us", clierr.Hint(err))
		require.Empty(t, w.Runtime.Calls())

		w.Up.Options.DryRun = true
		res := w.MustRun(t)
		require.ErrorContains(t, res.Refused, "cluster us")
		require.Equal(t, 1, res.Plan.Count(plan.Change), "the rest of the plan is shown")
		require.NotZero(t, res.Plan.Count(plan.Unknown))
		require.Contains(t, res.Plan.Summary(), "unknown (on us)")
		require.Empty(t, w.Runtime.Calls())

		w.Up.Options.AllowUnreachable = []string{"us"}
		require.NoError(t, w.MustRun(t).Refused)
	})
}

// Clusters of the setup can be namespaces of one API server: the next step is shown once.
func TestTwoUnreachableClustersHaveOneNextStep(t *testing.T) {
	const three = runtest.Minimal + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}, {name: ap, context: us, namespace: kcp-ap}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: alpha, cluster: us, url: "https://alpha.example.com:6443"}, {name: beta, cluster: ap, url: "https://beta.example.com:6443"}]
  frontProxies: [{name: main, cluster: eu}]
`
	inWorld(t, three, func(t *testing.T, w *world) {
		w.Runtime.Lost = []plan.Unreachable{{Cluster: "us", Err: runtest.ErrCut}, {Cluster: "ap", Err: runtest.ErrCut}}
		_, err := w.Run(t)
		groups := clierr.Groups(err)
		require.Len(t, groups, 1)
		require.Equal(t, "check the network; to leave it out for now, pass --allow unreachable=us,ap", groups[0].Hint)
	})
}

func TestAnUnreachableClusterIsLeftOut(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		before, err := w.Runtime.Record(t.Context())
		require.NoError(t, err)
		w.Lose("us")
		w.Up.Setup = []byte("the next setup")
		w.edit("root-shard", "shard/beta")
		w.Up.Options.AllowUnreachable = []string{"us"}
		w.MustRun(t)
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply root-shard", "Finish", "Unlock"}, w.Runtime.Calls())
		require.Contains(t, w.Notes(), "cluster us cannot be reached; left out: etcd/beta, shard/beta, front-proxy/edge. Run kcpctl up when it answers: "+runtest.ErrCut.Error())
		require.Contains(t, w.Of("canary"), "done a workspace on each of root, alpha became Ready and was read through the front-proxy",
			"through the front-proxy that can be reached")
		after, err := w.Runtime.Record(t.Context())
		require.NoError(t, err)
		require.True(t, before.Equal(after), "the record keeps all components")
		history, err := w.Runtime.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"us"}, history[len(history)-1].Without)
		_, complete := plan.Latest(history)
		require.False(t, complete)

		w.Lose("")
		w.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Apply shard/beta", "the next run completes it")
		history, err = w.Runtime.History(t.Context())
		require.NoError(t, err)
		_, complete = plan.Latest(history)
		require.True(t, complete)
		w.MustRun(t)
		require.Empty(t, w.Runtime.Calls())
	})
}

// A run that finds nothing to do on the rest is still remembered as partial, and completed, even if nothing changes
// there.
func TestWhatWasLeftOutIsRemembered(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Lose("us")
		w.edit("root-shard")
		w.Up.Setup = []byte("the next setup")
		w.Up.Options.AllowUnreachable = []string{"us"}
		w.MustRun(t)
		w.Lose("")
		w.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Finish", "nothing differs on us, but now that is known")
		history, err := w.Runtime.History(t.Context())
		require.NoError(t, err)
		require.True(t, history[len(history)-1].Complete())
	})
}

func TestARunThatIsNotAboutAClusterNeedsNotReachIt(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Lose("us")
		w.edit("shard/alpha")
		w.Up.Options.Only = []topology.ID{"shard/alpha", "etcd/alpha", "base/eu"}
		w.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Apply shard/alpha")
		require.Contains(t, w.Notes(), "cluster us cannot be reached; the run changes nothing there: "+runtest.ErrCut.Error())
		history, err := w.Runtime.History(t.Context())
		require.NoError(t, err)
		require.Empty(t, history[len(history)-1].Without)

		w.Up.Options.Only = []topology.ID{"shard/beta", "base/us"}
		_, err = w.Run(t)
		require.ErrorContains(t, err, "cluster us, with shard/beta, cannot be reached")
		w.Up.Options.AllowUnreachable = []string{"us"}
		_, err = w.Run(t)
		require.ErrorContains(t, err, "nothing can be changed", "an empty scope must not become all components")
		require.Empty(t, w.Runtime.Calls())
	})
}

// Nothing is deleted by a run that does not see all clusters.
func TestARunThatLeavesAClusterOutDeletesNothing(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		next := newWorld(t, topologytest.Build(t, runtest.TwoClusters+"  virtualWorkspaces: []\n"), w.Runtime)
		w.Runtime.Add(plan.Item{Ref: plan.Ref{Cluster: "eu", Namespace: "kcp", Name: "gone"}})
		w.Runtime.Use(next.Topology)
		next.Lose("us")
		next.Up.Options.AllowUnreachable = []string{"us"}
		res := next.MustRun(t)
		require.Empty(t, res.Plan.Deletions())
		next.Lose("")
		require.Len(t, next.MustRun(t).Plan.Deletions(), 1)
	})
}

// What every component must take part in does not leave any out.
func TestDangerousRunsNeedAllClusters(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*world)
		want    string
	}{
		"certificates renewed":    {func(w *world) { w.Up.Options.Renew = func(pki.Cert) bool { return true } }, "could not be renewed"},
		"authorities replaced":    {func(w *world) { w.Up.Options.ReplaceAuthorities = true }, "do not trust each other"},
		"the home cluster itself": {func(w *world) { w.Lose("eu"); w.Up.Options.AllowUnreachable = []string{"eu"} }, runtest.ErrCut.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
				w.MustRun(t)
				w.Lose("us")
				w.Up.Options.AllowUnreachable = []string{"us"}
				tc.prepare(w)
				_, err := w.Run(t)
				require.ErrorContains(t, err, tc.want)
				require.Empty(t, w.Runtime.Calls())
			})
		})
	}
}

func TestARotationNeedsAllClusters(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Lose("us")
		w.Runtime.Forget()
		w.Up.Options.AllowUnreachable = []string{"us"}
		r := &deploy.RotateCAs{Rotate: deploy.Rotate{
			Rotations: pki.Rotations{pki.RotationOf(topology.ClientCA)}, Topology: w.Topology, Store: w.Runtime.Store(), Up: w.Up, Now: w.Up.Now,
			Begin: func(string) func() { return func() {} },
		}}
		_, err := r.Run(t.Context())
		require.ErrorIs(t, err, runtest.ErrCut)
		require.Empty(t, w.Runtime.Calls())
	})
}

// A shard that may still run on a cluster that cannot be reached is not started elsewhere.
func TestAShardDoesNotLeaveALostCluster(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		text := runtest.Minimal + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards:
  - {name: alpha, url: "https://alpha.example.com:6443"}
  - {name: beta, url: "https://beta.example.com:6443"}
  frontProxies: [{name: edge, cluster: us}, {name: main, cluster: eu}]
`
		next := newWorld(t, topologytest.Build(t, text), w.Runtime)
		w.Runtime.Use(next.Topology)
		next.Up.Options.AllowDataChange = runtest.Everything
		next.Up.Options.AllowUnreachable = []string{"us"}
		next.Lose("us")
		_, err := next.Run(t)
		require.ErrorContains(t, err, "is on us/kcp, which cannot be reached, and may still run there")
		require.Empty(t, w.Runtime.Calls())
	})
}

// An installation without a record is not recorded while some of it cannot be seen.
func TestAnInstallationIsAdoptedAsAWhole(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Runtime.ForgetRecord()
		w.Lose("us")
		w.Up.Options.AllowUnreachable = []string{"us"}
		_, err := w.Run(t)
		require.ErrorContains(t, err, "the first run must see all of its components: cluster us cannot be reached")
		require.Empty(t, w.Runtime.Calls())
	})
}

// The first run may leave a cluster out, too.
func TestTheFirstRunWithoutACluster(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.Lose("us")
		w.Up.Options.AllowUnreachable = []string{"us"}
		w.MustRun(t)
		require.NotContains(t, w.Runtime.Calls(), "Apply shard/beta")
		w.Lose("")
		w.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Apply shard/beta")
	})
}

// A cluster that goes away during a run: the error names it, and the next run continues.
func TestAClusterIsLostDuringARun(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.Runtime.On("Apply shard/beta", func() error { return runtest.ErrCut })
		_, err := w.Run(t)
		require.ErrorContains(t, err, "shard/beta: "+runtest.ErrCut.Error())
		require.NotContains(t, w.Runtime.Calls(), "Finish")
		require.Contains(t, w.Runtime.Calls(), "Unlock")
		w.Runtime.On("Apply shard/beta", func() error { return nil })
		w.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Finish")
	})
}

// A cluster that goes away between the first plan and the lock.
func TestAClusterIsLostBeforeTheLock(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.edit("shard/beta")
		w.Runtime.On("Lock", func() error { w.Lose("us"); return nil })
		_, err := w.Run(t)
		require.ErrorContains(t, err, "cluster us, with")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
	})
}

// down needs all clusters, or some components would keep running.
func TestDownNeedsAllClusters(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Lose("us")
		w.Runtime.Forget()
		err := (&deploy.Down{Runtime: w.Runtime, Observe: func(run.Event) {}, Now: w.Up.Now}).Run(t.Context())
		require.True(t, errors.Is(err, runtest.ErrCut))
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
	})
}

var _ run.Reacher = (*fakeruntime.Runtime)(nil)

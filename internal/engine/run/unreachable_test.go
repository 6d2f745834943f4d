package run_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// twoClusters has the shard beta, and a front-proxy, on us.
const twoClusters = minimal + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards:
  - {name: alpha, url: "https://alpha.example.com:6443"}
  - {name: beta, cluster: us, url: "https://beta.example.com:6443"}
  frontProxies: [{name: edge, cluster: us}, {name: main, cluster: eu}]
`

var errCut = clierr.New(clierr.Failed, "check the network", "the API server of us does not answer")

// lose makes a cluster unreachable; without a name all are reached again.
func (w *world) lose(cluster string) {
	w.rt.Lost = nil
	if cluster != "" {
		w.rt.Lost = []plan.Unreachable{{Cluster: cluster, Err: errCut}}
	}
}

func TestAnUnreachableClusterIsNamedAndNothingIsWritten(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.lose("us")
		w.edit("root-shard")
		_, err := w.run(t)
		requireError(t, err, clierr.Failed, "cluster us, with etcd/beta, shard/beta, front-proxy/edge, cannot be reached; nothing was changed: "+errCut.Error())
		require.Equal(t, "check the network; to leave it out for now, pass --allow unreachable=us", clierr.Hint(err))
		require.Empty(t, w.rt.Calls())

		w.up.Options.DryRun = true
		res := w.mustRun(t)
		require.ErrorContains(t, res.Refused, "cluster us")
		require.Equal(t, 1, res.Plan.Count(plan.Change), "the rest of the plan is shown")
		require.NotZero(t, res.Plan.Count(plan.Unknown))
		require.Contains(t, res.Plan.Summary(), "unknown (on us)")
		require.Empty(t, w.rt.Calls())

		w.up.Options.AllowUnreachable = []string{"us"}
		require.NoError(t, w.mustRun(t).Refused)
	})
}

// Clusters of the setup can be namespaces of one API server: the next step is shown once.
func TestTwoUnreachableClustersHaveOneNextStep(t *testing.T) {
	const three = minimal + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}, {name: ap, context: us, namespace: kcp-ap}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: alpha, cluster: us, url: "https://alpha.example.com:6443"}, {name: beta, cluster: ap, url: "https://beta.example.com:6443"}]
  frontProxies: [{name: main, cluster: eu}]
`
	inWorld(t, three, func(t *testing.T, w *world) {
		w.rt.Lost = []plan.Unreachable{{Cluster: "us", Err: errCut}, {Cluster: "ap", Err: errCut}}
		_, err := w.run(t)
		groups := clierr.Groups(err)
		require.Len(t, groups, 1)
		require.Equal(t, "check the network; to leave it out for now, pass --allow unreachable=us,ap", groups[0].Hint)
	})
}

func TestAnUnreachableClusterIsLeftOut(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		before, err := w.rt.Record(t.Context())
		require.NoError(t, err)
		w.lose("us")
		w.up.Setup = []byte("the next setup")
		w.edit("root-shard", "shard/beta")
		w.up.Options.AllowUnreachable = []string{"us"}
		w.mustRun(t)
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply root-shard", "Finish", "Unlock"}, w.rt.Calls())
		require.Contains(t, w.notes(), "cluster us cannot be reached; left out: etcd/beta, shard/beta, front-proxy/edge. Run kcpctl up when it answers: "+errCut.Error())
		require.Contains(t, w.of("canary"), "done a workspace on each of root, alpha became Ready and was read through the front-proxy",
			"through the front-proxy that can be reached")
		after, err := w.rt.Record(t.Context())
		require.NoError(t, err)
		require.True(t, before.Equal(after), "the record keeps all components")
		history, err := w.rt.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"us"}, history[len(history)-1].Without)
		_, complete := plan.Latest(history)
		require.False(t, complete)

		w.lose("")
		w.mustRun(t)
		require.Contains(t, w.rt.Calls(), "Apply shard/beta", "the next run completes it")
		history, err = w.rt.History(t.Context())
		require.NoError(t, err)
		_, complete = plan.Latest(history)
		require.True(t, complete)
		w.mustRun(t)
		require.Empty(t, w.rt.Calls())
	})
}

// A run that finds nothing to do on the rest is still remembered as partial, and completed, even if nothing changes
// there.
func TestWhatWasLeftOutIsRemembered(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.lose("us")
		w.edit("root-shard")
		w.up.Setup = []byte("the next setup")
		w.up.Options.AllowUnreachable = []string{"us"}
		w.mustRun(t)
		w.lose("")
		w.mustRun(t)
		require.Contains(t, w.rt.Calls(), "Finish", "nothing differs on us, but now that is known")
		history, err := w.rt.History(t.Context())
		require.NoError(t, err)
		require.True(t, history[len(history)-1].Complete())
	})
}

func TestARunThatIsNotAboutAClusterNeedsNotReachIt(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.lose("us")
		w.edit("shard/alpha")
		w.up.Options.Only = []topology.ID{"shard/alpha", "etcd/alpha", "base/eu"}
		w.mustRun(t)
		require.Contains(t, w.rt.Calls(), "Apply shard/alpha")
		require.Contains(t, w.notes(), "cluster us cannot be reached; the run changes nothing there: "+errCut.Error())
		history, err := w.rt.History(t.Context())
		require.NoError(t, err)
		require.Empty(t, history[len(history)-1].Without)

		w.up.Options.Only = []topology.ID{"shard/beta", "base/us"}
		_, err = w.run(t)
		require.ErrorContains(t, err, "cluster us, with shard/beta, cannot be reached")
		w.up.Options.AllowUnreachable = []string{"us"}
		_, err = w.run(t)
		require.ErrorContains(t, err, "nothing can be changed", "an empty scope must not become all components")
		require.Empty(t, w.rt.Calls())
	})
}

// Nothing is deleted by a run that does not see all clusters.
func TestARunThatLeavesAClusterOutDeletesNothing(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		next := newWorld(t, topologytest.Build(t, twoClusters+"  virtualWorkspaces: []\n"), w.rt)
		w.rt.Add(plan.Item{Ref: plan.Ref{Cluster: "eu", Namespace: "kcp", Name: "gone"}})
		w.rt.Use(next.top)
		next.lose("us")
		next.up.Options.AllowUnreachable = []string{"us"}
		res := next.mustRun(t)
		require.Empty(t, res.Plan.Deletions())
		next.lose("")
		require.Len(t, next.mustRun(t).Plan.Deletions(), 1)
	})
}

// What every component must take part in does not leave any out.
func TestDangerousRunsNeedAllClusters(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*world)
		want    string
	}{
		"certificates renewed":    {func(w *world) { w.up.Options.Renew = func(pki.Cert) bool { return true } }, "could not be renewed"},
		"authorities replaced":    {func(w *world) { w.up.Options.ReplaceAuthorities = true }, "do not trust each other"},
		"the home cluster itself": {func(w *world) { w.lose("eu"); w.up.Options.AllowUnreachable = []string{"eu"} }, errCut.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, twoClusters, func(t *testing.T, w *world) {
				w.mustRun(t)
				w.lose("us")
				w.up.Options.AllowUnreachable = []string{"us"}
				tc.prepare(w)
				_, err := w.run(t)
				require.ErrorContains(t, err, tc.want)
				require.Empty(t, w.rt.Calls())
			})
		})
	}
}

func TestARotationNeedsAllClusters(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.lose("us")
		w.rt.Forget()
		w.up.Options.AllowUnreachable = []string{"us"}
		r := &run.RotateCAs{Rotate: run.Rotate{
			Rotations: pki.Rotations{pki.RotationOf(topology.ClientCA)}, Topology: w.top, Store: w.rt.Store(), Up: w.up, Now: w.up.Now,
			Begin: func(string) func() { return func() {} },
		}}
		_, err := r.Run(t.Context())
		require.ErrorIs(t, err, errCut)
		require.Empty(t, w.rt.Calls())
	})
}

// A shard that may still run on a cluster that cannot be reached is not started elsewhere.
func TestAShardDoesNotLeaveALostCluster(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		text := minimal + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards:
  - {name: alpha, url: "https://alpha.example.com:6443"}
  - {name: beta, url: "https://beta.example.com:6443"}
  frontProxies: [{name: edge, cluster: us}, {name: main, cluster: eu}]
`
		next := newWorld(t, topologytest.Build(t, text), w.rt)
		w.rt.Use(next.top)
		next.up.Options.AllowDataChange = everything
		next.up.Options.AllowUnreachable = []string{"us"}
		next.lose("us")
		_, err := next.run(t)
		require.ErrorContains(t, err, "is on us/kcp, which cannot be reached, and may still run there")
		require.Empty(t, w.rt.Calls())
	})
}

// An installation without a record is not recorded while some of it cannot be seen.
func TestAnInstallationIsAdoptedAsAWhole(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.rt.ForgetRecord()
		w.lose("us")
		w.up.Options.AllowUnreachable = []string{"us"}
		_, err := w.run(t)
		require.ErrorContains(t, err, "the first run must see all of its components: cluster us cannot be reached")
		require.Empty(t, w.rt.Calls())
	})
}

// The first run may leave a cluster out, too.
func TestTheFirstRunWithoutACluster(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.lose("us")
		w.up.Options.AllowUnreachable = []string{"us"}
		w.mustRun(t)
		require.NotContains(t, w.rt.Calls(), "Apply shard/beta")
		w.lose("")
		w.mustRun(t)
		require.Contains(t, w.rt.Calls(), "Apply shard/beta")
	})
}

// A cluster that goes away during a run: the error names it, and the next run continues.
func TestAClusterIsLostDuringARun(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.rt.On("Apply shard/beta", func() error { return errCut })
		_, err := w.run(t)
		require.ErrorContains(t, err, "shard/beta: "+errCut.Error())
		require.NotContains(t, w.rt.Calls(), "Finish")
		require.Contains(t, w.rt.Calls(), "Unlock")
		w.rt.On("Apply shard/beta", func() error { return nil })
		w.mustRun(t)
		require.Contains(t, w.rt.Calls(), "Finish")
	})
}

// A cluster that goes away between the first plan and the lock.
func TestAClusterIsLostBeforeTheLock(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.edit("shard/beta")
		w.rt.On("Lock", func() error { w.lose("us"); return nil })
		_, err := w.run(t)
		require.ErrorContains(t, err, "cluster us, with")
		require.Equal(t, []string{"Lock", "Unlock"}, w.rt.Calls())
	})
}

// down needs all clusters, or some components would keep running.
func TestDownNeedsAllClusters(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.lose("us")
		w.rt.Forget()
		err := (&run.Down{Runtime: w.rt, Observe: func(run.Event) {}, Now: w.up.Now}).Run(t.Context())
		require.True(t, errors.Is(err, errCut))
		require.Equal(t, []string{"Lock", "Unlock"}, w.rt.Calls())
	})
}

var _ run.Reacher = (*fakeruntime.Runtime)(nil)

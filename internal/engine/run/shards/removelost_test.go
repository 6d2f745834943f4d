package shards_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/shards"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// pair has the shards beta and gamma, and a front-proxy, on us.
const pair = runtest.Minimal + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards:
  - {name: alpha, url: "https://alpha.example.com:6443"}
  - {name: beta, cluster: us, url: "https://beta.example.com:6443"}
  - {name: gamma, cluster: us, url: "https://gamma.example.com:6443"}
  frontProxies: [{name: edge, cluster: us}, {name: main, cluster: eu}]
`

func on(shard string, names ...string) fakekcp.Answer {
	all := map[string]map[string]string{"root:other": {"core.kcp.io/shard": "alpha"}}
	for _, n := range names {
		all[n] = map[string]string{"core.kcp.io/shard": shard}
	}
	return fakekcp.DeletedWorkspaces(all)
}

// lostRemoval removes shards of a cluster that does not answer any more.
func (w *world) lostRemoval(t *testing.T, names ...string) *shards.RemoveShards {
	t.Helper()
	r := w.removal(t)
	r.Names = names
	w.Lose("us")
	w.Runtime.Kcp.Always("root-shard "+fakekcp.ListDeleted, on("beta", "root:b", "root:a"))
	return r
}

func TestALostShardStaysUnlessItsLossIsAllowed(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		r := w.lostRemoval(t, "beta")
		err := r.Run(t.Context())
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.ErrorContains(t, err, "cannot list the logical clusters of shard/beta: ")
		require.ErrorContains(t, err, runtest.ErrCut.Error()+"; it has at least 2 workspaces, and all below them\n    root:a\n    root:b")
		require.Contains(t, clierr.Hint(err), "pass --allow workspace-loss")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
		require.Empty(t, w.Runtime.Kcp.Requests(deleteShard))
		require.Contains(t, w.Of("cordon"), "done undone")
	})
}

func TestALostShardIsRemoved(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		r := w.lostRemoval(t, "beta")
		r.AllowWorkspaceLoss = true
		require.NoError(t, r.Run(t.Context()))
		require.Equal(t, []string{"Lock", "Begin", "Delete shard/beta", "Delete etcd/beta", "Finish", "Unlock"}, w.Runtime.Calls())
		require.Contains(t, w.Notes(), "shard beta is lost; it has at least 2 workspaces, and all below them\n    root:a\n    root:b")
		require.NotEmpty(t, w.Runtime.Kcp.Requests(deleteShard))
		known, err := w.Runtime.Record(t.Context())
		require.NoError(t, err)
		require.True(t, known.Data["shard/beta"].Removed)
		require.False(t, known.Data["shard/beta"].Emptied, "its workspaces could not be listed")

		// The setup without the shard is up, with or without the cluster.
		next := newWorld(t, topologytest.Build(t, twoClustersWithoutBeta), w.Runtime)
		w.Runtime.Use(next.Topology)
		w.Runtime.Kcp.Always(fakekcp.ListShards, fakekcp.Shards(
			kcp.Shard{Name: "root", BaseURL: next.Topology.Root().URL}, kcp.Shard{Name: "alpha", BaseURL: next.Topology.Component("shard/alpha").URL}))
		next.Up.Options.AllowUnreachable = []string{"us"}
		next.MustRun(t)
		next.Lose("")
		next.MustRun(t)

		// The data on the cluster is known until that is forgotten. What is elsewhere stays.
		known, err = w.Runtime.Record(t.Context())
		require.NoError(t, err)
		require.True(t, known.Data["shard/beta"].Removed)
		next.Up.Options.ForgetClusters = []string{"us"}
		next.MustRun(t)
		known, err = w.Runtime.Record(t.Context())
		require.NoError(t, err)
		require.NotContains(t, known.Data, topology.ID("shard/beta"))
		require.NotContains(t, known.Data, topology.ID("etcd/beta"))
		require.Contains(t, known.Data, topology.ID("shard/alpha"))
		require.True(t, next.MustRun(t).Plan.Empty())
	})
}

const twoClustersWithoutBeta = runtest.Minimal + `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: alpha, url: "https://alpha.example.com:6443"}]
  frontProxies: [{name: edge, cluster: us}, {name: main, cluster: eu}]
`

func TestALostClusterIsTakenOutOfServiceAsAWhole(t *testing.T) {
	inWorld(t, pair, func(t *testing.T, w *world) {
		r := w.lostRemoval(t, "beta")
		r.AllowWorkspaceLoss = true
		err := r.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed, "cluster us, with shard/gamma, cannot be reached; nothing was changed: "+runtest.ErrCut.Error())
		require.Equal(t, "check the network; if the cluster is lost for good, remove all of its shards: place/us", clierr.Hint(err))
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())

		w.Runtime.Forget()
		r.Names = []string{"beta", "gamma"}
		require.NoError(t, r.Run(t.Context()))
		require.Contains(t, w.Of("registration"), "done shard beta, gamma removed from kcp and from the setup file")
		known, err := w.Runtime.Record(t.Context())
		require.NoError(t, err)
		for _, id := range []topology.ID{"shard/beta", "etcd/beta", "shard/gamma", "etcd/gamma"} {
			require.True(t, known.Data[id].Removed, id)
		}
	})
}

func TestALossIsNotAllowedByAccident(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*world, *shards.RemoveShards)
		want    string
	}{
		"a shard that answers and is not empty": {func(w *world, r *shards.RemoveShards) {
			r.Names = []string{"alpha"}
			w.Lose("")
			w.Runtime.Kcp.Always("shard/alpha "+listClusters, living("root:a"))
		}, "shard/alpha is not empty"},
		"data that cannot be deleted": {func(_ *world, r *shards.RemoveShards) { r.Purge = true }, "the data of shard/beta cannot be deleted"},
		"a shard elsewhere":           {func(_ *world, r *shards.RemoveShards) { r.Names = []string{"alpha"} }, "cluster us, with shard/beta, cannot be reached"},
		"the home cluster":            {func(w *world, _ *shards.RemoveShards) { w.Lose("eu") }, runtest.ErrCut.Error()},
		"workspaces that cannot be listed": {func(w *world, _ *shards.RemoveShards) {
			w.Runtime.Kcp.Always("root-shard "+fakekcp.ListDeleted, fakekcp.Refuse(500, "InternalError", "no etcd"))
		}, "cannot list the workspaces on root-shard"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
				r := w.lostRemoval(t, "beta")
				r.AllowWorkspaceLoss = true
				tc.prepare(w, r)
				require.ErrorContains(t, r.Run(t.Context()), tc.want)
				require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
				require.Empty(t, w.Runtime.Kcp.Requests(deleteShard))
			})
		})
	}
}

// A shard whose cluster is reached, but whose data is broken.
func TestABrokenShardIsPurgedOnPurpose(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		r.Purge, r.AllowWorkspaceLoss = true, true
		w.Runtime.Kcp.Always("shard/alpha "+listClusters, fakekcp.Refuse(503, "ServiceUnavailable", "no etcd"))
		require.NoError(t, r.Run(t.Context()))
		require.Contains(t, w.Runtime.Calls(), "PurgeData etcd/alpha")
	})
}

func TestSeveralShardsAreRemovedTogether(t *testing.T) {
	const three = runtest.Minimal + "spec: {shards: [{name: alpha}, {name: beta}, {name: gamma}]}\n"
	inWorld(t, three, func(t *testing.T, w *world) {
		r := w.removal(t)
		r.Names = []string{"alpha", "beta"}
		w.Runtime.Kcp.Always("shard/alpha "+listClusters, living("root:a"))
		w.Runtime.Kcp.Always("shard/beta "+listClusters, living("root:b", "root:c"))
		err := r.Run(t.Context())
		require.ErrorContains(t, err, "shard/alpha is not empty: it has 1 logical cluster\n    root:a")
		require.ErrorContains(t, err, "shard/beta is not empty: it has 2 logical clusters\n    root:b")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
		for _, step := range []string{"cordon alpha", "cordon beta"} {
			require.Equal(t, []string{"running", "done no new workspaces", "done undone"}, w.Of(step))
		}

		w.Runtime.Forget()
		edits := 0
		r.Edit = func() (plan.Applied, error) { edits++; return plan.Applied{Setup: []byte("without them")}, nil }
		for _, name := range r.Names {
			w.Runtime.Kcp.Always("shard/"+name+" "+listClusters, living())
		}
		require.NoError(t, r.Run(t.Context()))
		require.Equal(t, 1, edits)
		require.Equal(t, []string{"Lock", "Begin", "Delete shard/alpha", "Delete etcd/alpha", "Delete shard/beta", "Delete etcd/beta", "Finish", "Unlock"}, w.Runtime.Calls())
	})
}

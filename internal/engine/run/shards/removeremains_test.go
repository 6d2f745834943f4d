package shards_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// onAlpha is a list of workspaces that are being deleted, as far as a shard has them.
func onAlpha(names ...string) fakekcp.Answer {
	all := map[string]map[string]string{"root:other": {"core.kcp.io/shard": "beta"}}
	for _, n := range names {
		all[n] = map[string]string{"core.kcp.io/shard": "alpha"}
	}
	return fakekcp.DeletedWorkspaces(all)
}

// withEndpoints puts endpoints of all shards into slices of root and beta, and returns those that stay.
func (w *world) withEndpoints() []string {
	const slices = "apiexportendpointslices"
	for _, shard := range []string{"alpha", "beta", "root"} {
		w.Runtime.Kcp.PutEndpoints(
			fakekcp.Endpoint{Server: "root-shard", Resource: slices, Cluster: "root", Slice: "tenancy.kcp.io", Manager: shard, URL: "https://" + shard},
			fakekcp.Endpoint{Server: "shard/beta", Resource: slices, Cluster: "team", Slice: "widgets", Manager: shard, URL: "https://" + shard + "/w"},
		)
	}
	return []string{
		"root-shard apiexportendpointslices root:tenancy.kcp.io beta https://beta", "root-shard apiexportendpointslices root:tenancy.kcp.io root https://root",
		"shard/beta apiexportendpointslices team:widgets beta https://beta/w", "shard/beta apiexportendpointslices team:widgets root https://root/w",
	}
}

func TestClearEndpoints(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		kept := w.withEndpoints()
		w.Runtime.Kcp.Script("shard/beta "+fakekcp.ApplySlice, fakekcp.Refuse(http.StatusInternalServerError, "InternalError", "no etcd"))
		err := r.Run(t.Context())
		runtest.RequireError(t, err, clierr.Failed, "shard/beta may still have endpoints of shard alpha: "+
			"remove the endpoint of shard alpha from apiexportendpointslices.apis.kcp.io team:widgets: no etcd")
		require.NotEmpty(t, clierr.Hint(err))
		require.NotContains(t, w.Runtime.Calls(), "Finish")

		// It continues, and can be done again.
		r.Topology = topologytest.Build(t, runtest.Minimal+"spec: {shards: [{name: beta}]}\n")
		w.Runtime.Kcp.Always(fakekcp.ListShards, fakekcp.Shards(kcp.Shard{Name: "root"}, kcp.Shard{Name: "beta"}))
		for _, want := range []string{"done 1 endpoint removed", "done 0 endpoints removed"} {
			w.Events = nil
			require.NoError(t, r.Run(t.Context()))
			require.Equal(t, want, w.Of("endpoints")[1])
		}
		require.Equal(t, kept, w.Runtime.Kcp.Endpoints())
		for _, r := range w.Runtime.Kcp.Requests(fakekcp.ApplySlice) {
			require.NotEqual(t, "shard/alpha", r.Server)
			require.Equal(t, []string{"system:masters"}, r.Groups)
		}
	})
}

// A shard that still runs applies its endpoints again: they go after its workload.
func TestClearEndpointsComesAfterTheProcess(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		w.withEndpoints()
		w.Runtime.On("Delete shard/alpha", func() error {
			require.Empty(t, w.Runtime.Kcp.Requests(fakekcp.ApplySlice))
			return nil
		})
		require.NoError(t, r.Run(t.Context()))
		require.Equal(t, []string{"running", "done 2 endpoints removed"}, w.Of("endpoints"))
	})
}

// An earlier removal, of which nothing else is known, has left endpoints: the name alone finds them.
func TestClearEndpointsOfAnUnknownShard(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		gone := fakekcp.Endpoint{
			Server: "shard/beta", Resource: "cachedresourceendpointslices", Cluster: "team", Slice: "maps", Manager: "gamma", URL: "https://gamma/m",
		}
		kept := append(w.withEndpoints(), w.Runtime.Kcp.Endpoints()...)
		w.Runtime.Kcp.PutEndpoints(gone)
		r.Names = []string{"gamma"}
		require.NoError(t, r.Run(t.Context()))
		require.Equal(t, "done 1 endpoint removed", w.Of("endpoints")[1])
		require.Subset(t, kept, w.Runtime.Kcp.Endpoints())
		require.Len(t, w.Runtime.Kcp.Endpoints(), 6)

		r.Names = []string{"root"}
		runtest.RequireError(t, r.Run(t.Context()), clierr.BadInput, `shard "root" does not exist`)
	})
}

// A shard of the setup file that was never started is not asked.
func TestClearEndpointsSkipsShardsThatAreNotRegistered(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		r.Topology = topologytest.Build(t, runtest.Minimal+"spec: {shards: [{name: alpha}, {name: beta}, {name: gamma}]}\n")
		require.NoError(t, r.Run(t.Context()))
	})
}

func TestRemoveShardWaitsForWorkspaces(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		w.Runtime.Kcp.Script("root-shard "+fakekcp.ListDeleted, onAlpha("root:a", "root:b"), onAlpha(), onAlpha(), onAlpha("root:unseen"))
		w.Runtime.Kcp.Script("shard/beta "+fakekcp.ListDeleted, onAlpha("team:c"), onAlpha())
		require.NoError(t, r.Run(t.Context()))
		require.Equal(t, []string{
			"running", "running waits until workspace root:a is deleted", "running waits until workspace team:c is deleted", "done empty",
		}, w.Of("contents"))
		require.Empty(t, w.Runtime.Kcp.Requests("shard/alpha "+fakekcp.ListDeleted))
	})
}

func TestRemoveShardStopsAtWorkspaces(t *testing.T) {
	for name, tc := range map[string]struct {
		answer fakekcp.Answer
		want   string
	}{
		"that stay": {onAlpha("root:a"), "workspace root:a is being deleted, for which kcp needs shard/alpha: timed out after 1m0s"},
		"that cannot be listed": {
			fakekcp.Refuse(http.StatusInternalServerError, "InternalError", "no etcd"),
			"cannot list the workspaces on root-shard: list workspaces.tenancy.kcp.io: no etcd",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
				r := w.removal(t)
				r.Timeout = time.Minute
				w.Runtime.Kcp.Always(fakekcp.ListDeleted, tc.answer)
				err := r.Run(t.Context())
				runtest.RequireError(t, err, clierr.NotReady, tc.want)
				require.NotEmpty(t, clierr.Hint(err))
				require.Empty(t, w.Runtime.Kcp.Requests(deleteShard))
				require.Contains(t, w.Of("cordon"), "done undone")
				require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
			})
		})
	}
}

// What was drained leaves workspaces that were being deleted; they are waited for too.
func TestRemoveShardWaitsForWorkspacesAfterADrain(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r, _ := w.draining(t, onShard("alpha", "a")...)
		w.Runtime.Kcp.Script("root-shard "+fakekcp.ListDeleted, onRoot("a"), onAlpha("root:b"))
		require.NoError(t, r.Run(t.Context()))
		require.Contains(t, w.Of("contents"), "running waits until workspace root:b is deleted")
	})
}

// onRoot is a list of Workspace objects in the root workspace.
func onRoot(names ...string) fakekcp.Answer {
	items := []any{}
	for _, name := range names {
		items = append(items, map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
			"metadata": map[string]any{"name": name, "annotations": map[string]any{"kcp.io/cluster": "root"}}})
	}
	return fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceList", "metadata": map[string]any{}, "items": items,
	}}
}

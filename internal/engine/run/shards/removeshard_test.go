package shards_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

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

// The requests of a removal, as fakekcp calls them.
const (
	patchShard    = "apply shards"
	deleteShard   = "delete shards"
	listClusters  = "list logicalclusters"
	dump          = "create logicalclusterdumps"
	getMigration  = "get logicalclustermigrations"
	listMigration = "list logicalclustermigrations"
)

var errRemovalKilled = errors.New("killed")

func anything() fakekcp.Answer {
	return fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
		"apiVersion": "v1", "kind": "Anything", "metadata": map[string]any{"name": "x"},
		"status": map[string]any{"phase": "Bound"},
	}}
}

// living is a list of logical clusters with these paths, and of one that every shard has.
func living(paths ...string) fakekcp.Answer {
	items := []any{}
	for _, p := range append(paths, "system:shard") {
		items = append(items, map[string]any{
			"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
			"metadata": map[string]any{"name": "cluster", "annotations": map[string]any{"kcp.io/cluster": p, "kcp.io/path": p}},
		})
	}
	return fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalClusterList", "metadata": map[string]any{}, "items": items,
	}}
}

// removal is a removal of alpha from a world that is up, in which every shard is empty.
func (w *world) removal(t *testing.T) *shards.RemoveShards {
	t.Helper()
	w.MustRun(t)
	w.Runtime.Forget()
	w.Events = nil
	for _, op := range []string{patchShard, deleteShard, "create apibindings", "get apibindings", "delete apibindings", "delete logicalclustermigrations"} {
		w.Runtime.Kcp.Always(op, anything())
	}
	w.Runtime.Kcp.Always(listClusters, living())
	w.Runtime.Kcp.Always(listMigration, living())
	return &shards.RemoveShards{
		Topology: w.Topology, Runtime: w.Runtime, Names: []string{"alpha"}, Observe: w.Observe(t), Now: time.Now, Timeout: time.Hour,
		CheckEdit: func() error { return nil }, Before: []byte("the setup"),
		Edit: func() (plan.Applied, error) { return plan.Applied{Setup: []byte("without alpha")}, nil },
	}
}

func TestRemoveShard(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		r.Purge = true
		edited := 0
		r.Edit = func() (plan.Applied, error) {
			edited++
			require.Len(t, w.Runtime.Kcp.Requests(deleteShard), 1, "kcp forgets the shard before the file does")
			require.Equal(t, []string{"Lock", "Begin"}, w.Runtime.Calls(), "the workload goes last")
			return plan.Applied{Setup: []byte("without alpha"), File: []byte("# without")}, nil
		}
		require.NoError(t, r.Run(t.Context()))
		require.Equal(t, 1, edited)
		require.Equal(t, []string{
			"Lock", "Begin", "Delete shard/alpha", "PurgeData shard/alpha", "Delete etcd/alpha", "PurgeData etcd/alpha", "Finish", "Unlock",
		}, w.Runtime.Calls())
		require.Len(t, w.Runtime.Kcp.Requests(patchShard), 1)
		left, err := w.Runtime.Objects(t.Context())
		require.NoError(t, err)
		for _, it := range left {
			require.NotEqual(t, "alpha", it.Component.Name(), it.Ref)
		}
		history, err := w.Runtime.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, "without alpha", string(history[len(history)-1].Setup))
		require.Equal(t, "# without", string(history[len(history)-1].File))
	})
}

func TestRemoveShardKeepsDataUnlessTold(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		require.NoError(t, w.removal(t).Run(t.Context()))
		require.NotContains(t, w.Runtime.Calls(), "PurgeData shard/alpha")
	})
}

func TestRemoveShardRefusesOneInUse(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		w.Runtime.Kcp.Always(listClusters, living("root:b", "root:a"))
		runtest.RequireError(t, r.Run(t.Context()), clierr.Failed,
			"shard/alpha is not empty: it has 2 logical clusters\n    root:a\n    root:b")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
		require.Empty(t, w.Runtime.Kcp.Requests(deleteShard))
		require.Equal(t, []string{"running", "done no new workspaces", "done undone"}, w.Of("cordon"))
	})
}

func TestRemoveShardLeavesACordonThatWasThere(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		alpha := w.Topology.Component("shard/alpha")
		w.Runtime.Kcp.Register(kcp.Shard{Name: "alpha", BaseURL: alpha.URL, Cordoned: true})
		w.Runtime.Kcp.Always(listClusters, living("root:a"))
		require.Error(t, r.Run(t.Context()))
		require.Empty(t, w.Runtime.Kcp.Requests(patchShard))
	})
}

func TestRemoveShardSaysWhyItCannotDrain(t *testing.T) {
	off := fakekcp.Refuse(http.StatusNotFound, "NotFound", "no such API")
	on := fakekcp.Refuse(http.StatusForbidden, "Forbidden", "only shards")
	for name, tc := range map[string]struct {
		text  string
		setUp func(w *world)
		want  string
	}{
		"old release": {
			runtest.Minimal + "spec: {version: v0.31.6, shards: [{name: alpha}]}\n", func(*world) {},
			"shard/alpha runs kcp v0.31.6, which cannot move logical clusters",
		},
		"gate is off": {
			runtest.TwoShards, func(w *world) { w.Runtime.Kcp.Always(dump, off) },
			"the feature gate LogicalClusterMigration, which kcp needs to move logical clusters, is off on shard/alpha",
		},
		"gate is off elsewhere": {
			runtest.Sharded, func(w *world) { w.Runtime.Kcp.Always("shard/alpha "+dump, on); w.Runtime.Kcp.Always(dump, off) },
			"the feature gate LogicalClusterMigration, which kcp needs to move logical clusters, is off on root-shard",
		},
		"nowhere to go": {
			runtest.Sharded, func(w *world) {
				w.Runtime.Kcp.Always(dump, on)
				w.Runtime.Kcp.Register(kcp.Shard{Name: "root", BaseURL: w.Topology.Root().URL, Cordoned: true})
			},
			"no other shard accepts workspaces",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, tc.text, func(t *testing.T, w *world) {
				r := w.removal(t)
				r.Drain = true
				w.Runtime.Kcp.Always(listClusters, living("root:a"))
				tc.setUp(w)
				err := r.Run(t.Context())
				runtest.RequireError(t, err, clierr.Failed, tc.want)
				require.NotEmpty(t, clierr.Hint(err))
				require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
				require.Contains(t, w.Of("cordon"), "done undone")
			})
		})
	}
}

// Whatever step is the last that was done: run again, the removal ends as if nothing had happened.
func TestRemoveShardContinues(t *testing.T) {
	for _, call := range []string{"Lock", "Begin", "Delete shard/alpha", "Delete etcd/alpha", "Finish"} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
				r := w.removal(t)
				w.Runtime.On(call, func() error { return errRemovalKilled })
				require.ErrorIs(t, r.Run(t.Context()), errRemovalKilled)
				w.Runtime.On(call, nil)

				// By now the file and kcp have no alpha.
				w.Runtime.Kcp.Always(fakekcp.ListShards, fakekcp.Shards(kcp.Shard{Name: "root"}, kcp.Shard{Name: "beta"}))
				r.Topology = topologytest.Build(t, runtest.Minimal+"spec: {shards: [{name: beta}]}\n")
				if call == "Finish" {
					r.Purge = true // nothing of it is left that could be found
				}
				require.NoError(t, r.Run(t.Context()))
				left, err := w.Runtime.Objects(t.Context())
				require.NoError(t, err)
				for _, it := range left {
					require.NotEqual(t, "alpha", it.Component.Name(), it.Ref)
				}
			})
		})
	}
}

func TestRemoveShardThatIsNotThere(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		r.Names = []string{"gamma"}
		runtest.RequireError(t, r.Run(t.Context()), clierr.BadInput, `shard "gamma" does not exist`)
	})
}

func TestRemoveShardThatTheFileDoesNotKnow(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		r.Topology = topologytest.Build(t, runtest.Minimal+"spec: {shards: [{name: beta}]}\n")
		runtest.RequireError(t, r.Run(t.Context()), clierr.Failed, "shard/alpha is registered and may have workspaces, but is not in the setup file")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
	})
}

func TestCanariesOfSomeShards(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		w.Up.Options.Canaries = []topology.ID{"shard/beta"}
		w.MustRun(t)
		require.Len(t, w.Runtime.Kcp.Requests(fakekcp.CreateWorkspace), 1)
		require.Contains(t, w.Of("canary"), "done a workspace on each of beta became Ready and was read through the front-proxy")
	})
}

// Before the question, it is known that the shards exist; a dry run also looks at what is on them.
func TestCheckOfARemoval(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		objects, err := r.Check(t.Context(), true)
		require.NoError(t, err)
		require.NotEmpty(t, objects)
		for _, it := range objects {
			require.Equal(t, "alpha", it.Component.Name())
		}
		w.Runtime.Kcp.Always(listClusters, living("root:a"))
		_, err = r.Check(t.Context(), false)
		require.NoError(t, err)
		_, err = r.Check(t.Context(), true)
		require.ErrorContains(t, err, "shard/alpha is not empty: it has 1 logical cluster\n    root:a")
		r.Drain = true
		_, err = r.Check(t.Context(), true)
		require.NoError(t, err)
		r.Names = []string{"gamma"}
		_, err = r.Check(t.Context(), false)
		runtest.RequireError(t, err, clierr.BadInput, `shard "gamma" does not exist`)
		require.Empty(t, w.Runtime.Calls())
		require.Empty(t, w.Runtime.Kcp.Requests(patchShard))
	})
}

package shards_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// The cache server and the root shard have an etcd too, which is called like a shard's.
func TestRemoveShardRemovesOnlyShards(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		for _, name := range []string{"cache", "root", "gama", "vw", "main"} {
			r := w.removal(t)
			r.Names, r.Purge = []string{name}, true
			runtest.RequireError(t, r.Run(t.Context()), clierr.BadInput, `shard "`+name+`" does not exist`)
			require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
			require.Empty(t, w.Runtime.Kcp.Requests(deleteShard))
		}
	})
}

// Another run holds the lock: nothing is changed, neither in kcp nor in the file.
func TestRemoveShardWaitsForTheLock(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		r.Edit = func() (plan.Applied, error) { t.Error("the file is edited"); return plan.Applied{}, nil }
		w.Runtime.On("Lock", func() error { return clierr.New(clierr.Conflict, "wait", "locked") })
		before := len(w.Runtime.Kcp.Requests(""))
		runtest.RequireError(t, r.Run(t.Context()), clierr.Conflict, "locked")
		require.Len(t, w.Runtime.Kcp.Requests(""), before)
	})
}

func TestRemoveShardChecksTheFileFirst(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		r.CheckEdit = func() error { return clierr.New(clierr.Conflict, "", "the file was changed") }
		runtest.RequireError(t, r.Run(t.Context()), clierr.Conflict, "the file was changed")
		require.Empty(t, w.Runtime.Kcp.Requests(patchShard), "it is not even cordoned")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
	})
}

// A root shard that was restored from a backup older than the shard does not know it, and the shard is down: it may
// hold workspaces.
func TestRemoveShardKeepsDataThatItCannotLookInto(t *testing.T) {
	for name, tc := range map[string]struct{ purge, drain bool }{
		"purge": {purge: true}, "drain": {drain: true}, "neither": {},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
				r := w.removal(t)
				r.Purge, r.Drain = tc.purge, tc.drain
				w.Runtime.Kcp.Unregister("alpha")
				w.Runtime.Kcp.Always("shard/alpha "+listClusters, fakekcp.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "no etcd"))
				err := r.Run(t.Context())
				if name != "neither" {
					require.Equal(t, clierr.Failed, clierr.Code(err))
					require.ErrorContains(t, err, "shard/alpha may have workspaces, but they cannot be listed")
					require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
					return
				}
				require.NoError(t, err)
				known, err := w.Runtime.Record(t.Context())
				require.NoError(t, err)
				require.True(t, known.Data["shard/alpha"].Removed)
				require.False(t, known.Data["shard/alpha"].Emptied)

				// A later run must not take that for empty.
				r.Purge, r.Topology = true, topologytest.Build(t, runtest.Minimal+"spec: {shards: [{name: beta}]}\n")
				err = r.Run(t.Context())
				require.ErrorContains(t, err, "shard/alpha may have workspaces, but they cannot be listed")
				require.Contains(t, clierr.Hint(err), "pass --allow workspace-loss")
				require.NotContains(t, w.Runtime.Calls(), "PurgeData etcd/alpha")
				r.AllowWorkspaceLoss = true
				require.NoError(t, r.Run(t.Context()))
				require.Contains(t, w.Runtime.Calls(), "PurgeData etcd/alpha")
			})
		})
	}
}

// A workspace that was on its way when the shard was cordoned arrives before the shard is unregistered.
func TestRemoveShardLooksAgainBeforeDataGoes(t *testing.T) {
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		r := w.removal(t)
		r.Purge = true
		w.Runtime.Kcp.Script("shard/alpha "+listClusters, living(), living("root:late"))
		runtest.RequireError(t, r.Run(t.Context()), clierr.Failed, "shard/alpha is not empty: it has 1 logical cluster\n    root:late")
		require.Len(t, w.Runtime.Kcp.Requests("create shards"), 1, "kcp gets it back")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
	})
}

// What ends before the removal is recorded, for whatever reason, leaves all shards registered as they were.
func TestRemoveShardRegistersAllShardsAgain(t *testing.T) {
	for name, end := range map[string]func(w *world, cancel func()){
		"a workspace arrives": func(w *world, _ func()) {
			w.Runtime.Kcp.Script("shard/beta "+listClusters, living(), living("root:late"))
		},
		"the user ends it": func(w *world, cancel func()) {
			w.Runtime.On("Begin", func() error { cancel(); return errRemovalKilled })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
				r := w.removal(t)
				r.Names = []string{"alpha", "beta"}
				w.Runtime.Kcp.Register(kcp.Shard{Name: "alpha", BaseURL: w.Topology.Component("shard/alpha").URL, Cordoned: true})
				w.Runtime.Kcp.Never(deleteShard)
				ctx, cancel := context.WithCancel(t.Context())
				end(w, cancel)
				require.Error(t, r.Run(ctx))
				for _, name := range r.Names {
					s, registered := w.Runtime.Kcp.Shard(name)
					require.True(t, registered, name)
					require.Equal(t, name == "alpha", s.Cordoned)
					require.Equal(t, w.Topology.Component(topology.IDOf(topology.Shard, name)).URL, s.BaseURL)
				}
				require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
			})
		})
	}
}

// After a removal nothing is left of a purged shard, and what one without purge has left is known.
func TestRemoveShardIsRecorded(t *testing.T) {
	for _, purge := range []bool{true, false} {
		inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
			r := w.removal(t)
			r.Purge = purge
			require.NoError(t, r.Run(t.Context()))
			known, err := w.Runtime.Record(t.Context())
			require.NoError(t, err)
			for _, id := range []topology.ID{"shard/alpha", "etcd/alpha"} {
				d, left := known.Data[id]
				require.Equal(t, !purge, left, id)
				require.Equal(t, !purge, d.Removed && d.Emptied, id)
			}
			require.Contains(t, known.Data, topology.ID("etcd/beta"))
			next := newWorld(t, topologytest.Build(t, runtest.Minimal+"spec: {shards: [{name: beta}]}\n"), w.Runtime)
			next.Runtime.Use(next.Topology)
			next.Runtime.Kcp.Always(fakekcp.ListShards, fakekcp.Shards(kcp.Shard{Name: "root", BaseURL: next.Topology.Root().URL}, kcp.Shard{Name: "beta", BaseURL: next.Topology.Component("shard/beta").URL}))
			next.MustRun(t)
		})
	}
}

// A run that is limited to components remembers what it did, not what the file says.
func TestRestrictedRunsRememberWhatTheyDid(t *testing.T) {
	const both = runtest.Minimal + "spec: {defaults: {logLevel: 4}, shards: [{name: alpha}, {name: beta}]}\n"
	inWorld(t, runtest.TwoShards, func(t *testing.T, w *world) {
		w.Up.Setup = []byte("first")
		w.MustRun(t)
		next := newWorld(t, topologytest.Build(t, both), w.Runtime)
		next.Runtime.Use(next.Topology)
		next.Up.Setup = []byte("second")
		next.Up.Options.Only = []topology.ID{"shard/alpha"}
		next.MustRun(t)
		revisions := func() (out []string) {
			history, err := w.Runtime.History(t.Context())
			require.NoError(t, err)
			for _, r := range history {
				out = append(out, string(r.Setup))
			}
			return out
		}
		history, err := w.Runtime.History(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"shard/alpha"}, history[1].Only)
		setup, complete := plan.Latest(history)
		require.Equal(t, "first", string(setup))
		require.False(t, complete)

		// Neither file is what runs: both have something that waits.
		for text, topology := range map[string]*topology.Topology{"first": w.Topology, "second": next.Topology} {
			waits := next.Unapplied(t, topology, text)
			require.False(t, waits.Empty(), text)
		}
		next.Up.Options.Only = nil
		next.MustRun(t)
		require.Equal(t, []string{"first", "second", "second"}, revisions())
		require.True(t, next.Unapplied(t, next.Topology, "second").Empty())
	})
}

// kcp cannot forget a shard that owns its Shard object: nothing is cordoned, moved or deleted.
func TestRemoveShardRefusesAnOwner(t *testing.T) {
	inWorld(t, runtest.Minimal+"spec: {version: v0.33.0, shards: [{name: alpha}, {name: beta}]}\n", func(t *testing.T, w *world) {
		const refusal = "kcp v0.33.0 has no way to remove the Shard object of a shard that is gone (kcp#4336), and would schedule workspaces there"
		r := w.removal(t)
		_, err := r.Check(t.Context(), true)
		require.EqualError(t, err, refusal)
		runtest.RequireError(t, r.Run(t.Context()), clierr.Failed, refusal)
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
	})
}

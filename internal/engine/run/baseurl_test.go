package run_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// withURL returns the world after the base URL of alpha has changed in the setup file.
func (w *world) withURL(t *testing.T, text string) *world {
	t.Helper()
	w.mustRun(t)
	next := newWorld(t, topologytest.Build(t, strings.Replace(text, "{name: alpha}", `{name: alpha, url: "https://alpha.example.com:6443"}`, 1)), w.rt)
	w.rt.Use(next.top)
	return next
}

// All front-proxies restart, also one without another replica, but only when the shard has registered its new URL.
func TestFrontProxiesRestartWhenABaseURLChanges(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		next := w.withURL(t, replicated)
		alpha := next.top.Component("shard/alpha")
		before := w.top.Component("shard/alpha").URL
		old := fakekcp.Shard(kcp.Shard{Name: "alpha", BaseURL: before})
		w.rt.On("Apply shard/alpha", func() error {
			w.rt.Kcp.Script("root-shard "+fakekcp.GetShard, old, old)
			return nil
		})
		next.mustRun(t)
		calls := w.rt.Calls()
		at := slices.Index(calls, "Apply shard/alpha")
		require.Equal(t, []string{"Replace front-proxy/main", "Replace front-proxy/single"}, calls[at+1:at+3])
		waited := next.when("shard/alpha", "running", "registered with the URL "+before+", not yet "+alpha.URL)
		require.GreaterOrEqual(t, waited, 0)
		require.Greater(t, next.when("shard/alpha", "running", "has another base URL or other data; front-proxy/main restarts"), waited)
	})
}

// What the run changes after the shard starts again anyway.
func TestFrontProxiesThatRollDoNotRestartTwice(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		w.mustRun(t)
		require.NotContains(t, w.rt.Calls(), "Replace front-proxy/single")
		next := w.withURL(t, replicated)
		next.edit("front-proxy/main")
		next.mustRun(t)
		require.NotContains(t, w.rt.Calls(), "Replace front-proxy/main")
		require.Contains(t, w.rt.Calls(), "Apply front-proxy/main")
		require.Contains(t, w.rt.Calls(), "Replace front-proxy/single")
	})
}

func TestAFrontProxyThatCannotRestartIsNamed(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		next := w.withURL(t, replicated)
		w.rt.On("Replace front-proxy/single", func() error { return errors.New("forbidden") })
		_, err := next.run(t)
		require.ErrorContains(t, err, "front-proxy/single does not find shard/alpha until it restarts, because the base URL or the data of the shard has changed: forbidden")
		require.Equal(t, "rerun the command: it restarts front-proxy/single", clierr.Hint(err))
	})
}

// The next run restarts the front-proxies if this one is interrupted, whenever that happens.
func TestFrontProxiesRestartAfterAnInterruption(t *testing.T) {
	for name, moment := range map[string]func(run.Event) bool{
		"after the shard was applied": func(e run.Event) bool { return e.Name == "shard/alpha" && e.Message == "started" },
		"before the front-proxies restart": func(e run.Event) bool {
			return e.Name == "shard/alpha" && strings.HasPrefix(e.Message, "has another base URL")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, replicated, func(t *testing.T, w *world) {
				next := w.withURL(t, replicated)
				next.onEach = func(e run.Event) {
					if moment(e) {
						w.rt.Lose(errors.New("killed"))
					}
				}
				_, err := next.run(t)
				require.ErrorContains(t, err, "killed")
				require.NotContains(t, w.rt.Calls(), "Finish")
				next.onEach = func(run.Event) {}
				res := next.mustRun(t)
				require.Zero(t, res.Plan.Count(plan.Change), "no object shows it")
				require.Equal(t, []string{"Lock", "Save", "Begin", "Replace front-proxy/main", "Replace front-proxy/single", "Finish", "Unlock"}, w.rt.Calls())
				require.True(t, next.mustRun(t).Plan.Empty())
				require.Empty(t, w.rt.Calls())
			})
		})
	}
}

// A front-proxy that cannot be reached restarts in the first run that reaches it, and a run for other components does
// not forget it.
func TestAFrontProxyOnALostClusterRestartsLater(t *testing.T) {
	inWorld(t, twoClusters, func(t *testing.T, w *world) {
		w.mustRun(t)
		next := newWorld(t, topologytest.Build(t, strings.Replace(twoClusters, "https://alpha.example.com", "https://new.example.com", 1)), w.rt)
		w.rt.Use(next.top)
		next.lose("us")
		next.up.Options.AllowUnreachable = []string{"us"}
		next.mustRun(t)
		require.Contains(t, w.rt.Calls(), "Replace front-proxy/main")
		require.NotContains(t, w.rt.Calls(), "Replace front-proxy/edge")
		require.Contains(t, next.notes(), "front-proxy/edge must restart, because the base URL or the data of shard/alpha has changed, but cluster us cannot be reached; run kcpctl up when it answers")

		next.lose("")
		next.up.Options.Only = []topology.ID{"shard/beta"}
		next.mustRun(t)
		require.NotContains(t, w.rt.Calls(), "Replace front-proxy/edge")
		next.up.Options.Only = nil
		next.mustRun(t)
		require.Contains(t, w.rt.Calls(), "Replace front-proxy/edge")
		require.NotContains(t, w.rt.Calls(), "Replace front-proxy/main")
		require.True(t, next.mustRun(t).Plan.Empty())
	})
}

// copied brings a setup up with the data of a backup, in which alpha has a base URL. It returns what was called.
func (w *world) copied(t *testing.T, alpha string) []string {
	t.Helper()
	w.mustRun(t)
	require.NoError(t, w.down(t, false))
	known, err := w.rt.Record(t.Context())
	require.NoError(t, err)
	proxies := []topology.ID{"front-proxy/main", "front-proxy/single"}
	known.Moved = map[topology.ID][]topology.ID{"root-shard": proxies, "shard/alpha": proxies, "shard/beta": proxies}
	require.NoError(t, w.rt.Keep(t.Context(), known))
	w.rt.Kcp.Register(kcp.Shard{Name: "alpha", BaseURL: alpha})
	w.mustRun(t)
	return w.rt.Calls()
}

// It may already use the base URL of the place where the backup was taken, and would use it for new workspaces, too.
func TestTheRootShardOfACopyRestartsBeforeWorkspacesAreCreated(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		calls := w.copied(t, "https://original.example.com:6443")
		restarted := slices.Index(calls, "Replace root-shard")
		for _, shard := range []string{"alpha", "beta"} {
			require.Greater(t, restarted, slices.Index(calls, "Apply shard/"+shard))
			require.Less(t, w.when(topology.ID("shard/"+shard), run.Done, ""), w.when("root-shard", run.Running, "began with other base URLs"))
		}
		require.Less(t, w.when("root-shard", run.Done, "restarted"), w.when("canary", run.Running, "a workspace on 3 shards"))
	})
	inWorld(t, replicated, func(t *testing.T, w *world) {
		calls := w.copied(t, w.top.Component("shard/alpha").URL)
		require.Contains(t, calls, "Apply shard/alpha")
		require.NotContains(t, calls, "Replace root-shard", "it has the right base URLs")
	})
	inWorld(t, replicated, func(t *testing.T, w *world) {
		w.rt.On("Replace root-shard", func() error { return errors.New("forbidden") })
		w.mustRun(t)
		require.NotContains(t, w.rt.Calls(), "Replace root-shard", "it is new")
	})
}

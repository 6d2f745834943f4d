package deploy_test

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
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// withURL returns the world after the base URL of alpha has changed in the setup file.
func (w *world) withURL(t *testing.T, text string) *world {
	t.Helper()
	w.MustRun(t)
	next := newWorld(t, topologytest.Build(t, strings.Replace(text, "{name: alpha}", `{name: alpha, url: "https://alpha.example.com:6443"}`, 1)), w.Runtime)
	w.Runtime.Use(next.Topology)
	return next
}

// All front-proxies restart, also one without another replica, but only when the shard has registered its new URL.
func TestFrontProxiesRestartWhenABaseURLChanges(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		next := w.withURL(t, replicated)
		alpha := next.Topology.Component("shard/alpha")
		before := w.Topology.Component("shard/alpha").URL
		old := fakekcp.Shard(kcp.Shard{Name: "alpha", BaseURL: before})
		w.Runtime.On("Apply shard/alpha", func() error {
			w.Runtime.Kcp.Script("root-shard "+fakekcp.GetShard, old, old)
			return nil
		})
		next.MustRun(t)
		calls := w.Runtime.Calls()
		at := slices.Index(calls, "Apply shard/alpha")
		require.Equal(t, []string{"Replace front-proxy/main", "Replace front-proxy/single"}, calls[at+1:at+3])
		waited := next.When("shard/alpha", "running", "registered with the URL "+before+", not yet "+alpha.URL)
		require.GreaterOrEqual(t, waited, 0)
		require.Greater(t, next.When("shard/alpha", "running", "has another base URL or other data; front-proxy/main restarts"), waited)
	})
}

// What the run changes after the shard starts again anyway.
func TestFrontProxiesThatRollDoNotRestartTwice(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		w.MustRun(t)
		require.NotContains(t, w.Runtime.Calls(), "Replace front-proxy/single")
		next := w.withURL(t, replicated)
		next.edit("front-proxy/main")
		next.MustRun(t)
		require.NotContains(t, w.Runtime.Calls(), "Replace front-proxy/main")
		require.Contains(t, w.Runtime.Calls(), "Apply front-proxy/main")
		require.Contains(t, w.Runtime.Calls(), "Replace front-proxy/single")
	})
}

func TestAFrontProxyThatCannotRestartIsNamed(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		next := w.withURL(t, replicated)
		w.Runtime.On("Replace front-proxy/single", func() error { return errors.New("forbidden") })
		_, err := next.Run(t)
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
				next.OnEach = func(e run.Event) {
					if moment(e) {
						w.Runtime.Lose(errors.New("killed"))
					}
				}
				_, err := next.Run(t)
				require.ErrorContains(t, err, "killed")
				require.NotContains(t, w.Runtime.Calls(), "Finish")
				next.OnEach = func(run.Event) {}
				res := next.MustRun(t)
				require.Zero(t, res.Plan.Count(plan.Change), "no object shows it")
				require.Equal(t, []string{"Lock", "Save", "Begin", "Replace front-proxy/main", "Replace front-proxy/single", "Finish", "Unlock"}, w.Runtime.Calls())
				require.True(t, next.MustRun(t).Plan.Empty())
				require.Empty(t, w.Runtime.Calls())
			})
		})
	}
}

// A front-proxy that cannot be reached restarts in the first run that reaches it, and a run for other components does
// not forget it.
func TestAFrontProxyOnALostClusterRestartsLater(t *testing.T) {
	inWorld(t, runtest.TwoClusters, func(t *testing.T, w *world) {
		w.MustRun(t)
		next := newWorld(t, topologytest.Build(t, strings.Replace(runtest.TwoClusters, "https://alpha.example.com", "https://new.example.com", 1)), w.Runtime)
		w.Runtime.Use(next.Topology)
		next.Lose("us")
		next.Up.Options.AllowUnreachable = []string{"us"}
		next.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Replace front-proxy/main")
		require.NotContains(t, w.Runtime.Calls(), "Replace front-proxy/edge")
		require.Contains(t, next.Notes(), "front-proxy/edge must restart, because the base URL or the data of shard/alpha has changed, but cluster us cannot be reached; run kcpctl up when it answers")

		next.Lose("")
		next.Up.Options.Only = []topology.ID{"shard/beta"}
		next.MustRun(t)
		require.NotContains(t, w.Runtime.Calls(), "Replace front-proxy/edge")
		next.Up.Options.Only = nil
		next.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Replace front-proxy/edge")
		require.NotContains(t, w.Runtime.Calls(), "Replace front-proxy/main")
		require.True(t, next.MustRun(t).Plan.Empty())
	})
}

// copied brings a setup up with the data of a backup, in which alpha has a base URL. It returns what was called.
func (w *world) copied(t *testing.T, alpha string) []string {
	t.Helper()
	w.MustRun(t)
	require.NoError(t, w.down(t, false))
	known, err := w.Runtime.Record(t.Context())
	require.NoError(t, err)
	proxies := []topology.ID{"front-proxy/main", "front-proxy/single"}
	known.Moved = map[topology.ID][]topology.ID{"root-shard": proxies, "shard/alpha": proxies, "shard/beta": proxies}
	require.NoError(t, w.Runtime.Keep(t.Context(), known))
	w.Runtime.Kcp.Register(kcp.Shard{Name: "alpha", BaseURL: alpha})
	w.MustRun(t)
	return w.Runtime.Calls()
}

// It may already use the base URL of the place where the backup was taken, and would use it for new workspaces, too.
func TestTheRootShardOfACopyRestartsBeforeWorkspacesAreCreated(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		calls := w.copied(t, "https://original.example.com:6443")
		restarted := slices.Index(calls, "Replace root-shard")
		for _, shard := range []string{"alpha", "beta"} {
			require.Greater(t, restarted, slices.Index(calls, "Apply shard/"+shard))
			require.Less(t, w.When(topology.ID("shard/"+shard), run.Done, ""), w.When("root-shard", run.Running, "began with other base URLs"))
		}
		require.Less(t, w.When("root-shard", run.Done, "restarted"), w.When("canary", run.Running, "a workspace on 3 shards"))
	})
	inWorld(t, replicated, func(t *testing.T, w *world) {
		calls := w.copied(t, w.Topology.Component("shard/alpha").URL)
		require.Contains(t, calls, "Apply shard/alpha")
		require.NotContains(t, calls, "Replace root-shard", "it has the right base URLs")
	})
	inWorld(t, replicated, func(t *testing.T, w *world) {
		w.Runtime.On("Replace root-shard", func() error { return errors.New("forbidden") })
		w.MustRun(t)
		require.NotContains(t, w.Runtime.Calls(), "Replace root-shard", "it is new")
	})
}

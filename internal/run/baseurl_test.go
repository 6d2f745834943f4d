package run_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kcp"
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
		require.Greater(t, next.when("shard/alpha", "running", "has a new base URL; front-proxy/main restarts"), waited)
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
		require.ErrorContains(t, err, "front-proxy/single does not find shard/alpha until it restarts, because the base URL of the shard has changed: forbidden")
		require.Equal(t, "restart it: kubectl rollout restart deployment/demo-front-proxy-single -n kcp", clierr.Hint(err))
	})
}

package run_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Clients use an additional Service already: it leads to a component only when that serves.
func TestAliasesFollowWhatServes(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		w.mustRun(t)
		w = newWorld(t, topologytest.Build(t, minimal+"spec: {frontProxies: [{name: main, aliases: [old-front-proxy]}]}\n"), w.rt)
		w.rt.Use(w.top)
		w.rt.States("front-proxy/main", waiting("not yet"), waiting("not yet"), isReady())
		applied := func() int {
			return len(slices.DeleteFunc(w.rt.Calls(), func(c string) bool { return c != "Apply front-proxy/main" }))
		}
		w.onEach = func(e run.Event) {
			if e.Name == "front-proxy/main" && e.Message == "not yet" {
				require.Equal(t, 1, applied())
			}
		}
		w.mustRun(t)
		require.Equal(t, 2, applied(), "the component, then its additional Service")
		w.mustRun(t)
		require.Zero(t, applied(), "it stays as it is")

		boom := errors.New("boom")
		w.rt.Edit("Service/kcp/old-front-proxy", func(o *unstructured.Unstructured) { o.SetLabels(nil) })
		w.rt.On("Apply front-proxy/main", func() error { return boom })
		_, err := w.run(t)
		require.ErrorContains(t, err, "boom")
		require.Equal(t, "failed boom", w.of("front-proxy/main")[len(w.of("front-proxy/main"))-1])
	})
}

package deploy_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Clients use an additional Service already: it leads to a component only when that serves.
func TestAliasesFollowWhatServes(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.MustRun(t)
		w = newWorld(t, topologytest.Build(t, runtest.Minimal+"spec: {frontProxies: [{name: main, aliases: [old-front-proxy]}]}\n"), w.Runtime)
		w.Runtime.Use(w.Topology)
		w.Runtime.States("front-proxy/main", runtest.Waiting("not yet"), runtest.Waiting("not yet"), runtest.IsReady())
		applied := func() int {
			return len(slices.DeleteFunc(w.Runtime.Calls(), func(c string) bool { return c != "Apply front-proxy/main" }))
		}
		w.OnEach = func(e run.Event) {
			if e.Name == "front-proxy/main" && e.Message == "not yet" {
				require.Equal(t, 1, applied())
			}
		}
		w.MustRun(t)
		require.Equal(t, 2, applied(), "the component, then its additional Service")
		w.MustRun(t)
		require.Zero(t, applied(), "it stays as it is")

		boom := errors.New("boom")
		w.Runtime.Edit("Service/kcp/old-front-proxy", func(o *unstructured.Unstructured) { o.SetLabels(nil) })
		w.Runtime.On("Apply front-proxy/main", func() error { return boom })
		_, err := w.Run(t)
		require.ErrorContains(t, err, "boom")
		require.Equal(t, "failed boom", w.Of("front-proxy/main")[len(w.Of("front-proxy/main"))-1])
	})
}

package deploy_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

const replicated = `spec:
  defaults: {replicas: 2}
  shards: [{name: alpha}, {name: beta, replicas: 1}]
  frontProxies: [{name: main}, {name: single, replicas: 1}]
`

// rolled brings a setup up and then changes all of its servers; it returns what was called meanwhile.
func (w *world) rolled(t *testing.T) []string {
	w.MustRun(t)
	for _, name := range []string{"demo-root", "demo-shard-alpha", "demo-shard-beta", "demo-front-proxy-main"} {
		w.Runtime.Edit("Deployment/kcp/"+name, func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"edited": "yes"}) })
	}
	w.MustRun(t)
	return slices.Collect(runtest.Filter(w.Runtime.Calls(), ""))
}

// If other pods keep serving, front-proxies get connections to the new pods of a shard before the old ones end.
func TestRunsGiveFrontProxiesNewConnections(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		require.Equal(t, []string{
			"Lock", "Save", "Begin",
			"Apply root-shard", "Replace front-proxy/main",
			"Apply shard/alpha", "Replace front-proxy/main",
			"Apply shard/beta", "Apply front-proxy/main", "Finish", "Unlock",
		}, w.rolled(t))
	})
}

// Who may not delete pods still gets the change: a request may fail.
func TestARunGoesOnWithoutNewConnections(t *testing.T) {
	inWorld(t, replicated, func(t *testing.T, w *world) {
		w.Runtime.On("Replace front-proxy/main", func() error { return errors.New("forbidden") })
		calls := w.rolled(t)
		require.Contains(t, calls, "Finish")
		require.True(t, slices.ContainsFunc(w.Events, func(e run.Event) bool {
			return e.Scope == run.Note && e.Message ==
				"front-proxy/main keeps its connections to the old pods of root-shard, so a request may fail when they end: forbidden"
		}))
	})
}

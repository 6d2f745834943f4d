package run_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

// slow delays the readiness of every component.
func (w *world) slow() {
	for _, c := range w.top.Components {
		w.rt.States(c.ID(), waiting("container is starting"), waiting("probe fails"), isReady())
	}
}

func TestUpWritesInOrder(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		w.mustRun(t)
		calls := w.rt.Calls()
		require.Equal(t, []string{"Apply namespaces", "Lock", "Save", "Begin"}, calls[:4])
		require.Equal(t, []string{"Finish", "Unlock"}, calls[len(calls)-2:])
		require.Len(t, calls, 4+len(w.top.Components)+1+2, "each component is applied once, and roles of a kubeconfig after it")
		history, err := w.rt.History(t.Context())
		require.NoError(t, err)
		require.Len(t, history, 1)
		require.Equal(t, "the setup", string(history[0].Setup))
	})
}

func TestUpStartsWhatIsNewWithWhatItAwaits(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		w.slow()
		w.mustRun(t)
		for _, c := range w.top.Components {
			applied := w.when(c.ID(), run.Running, "applying")
			require.GreaterOrEqual(t, applied, 0, c.ID())
			for _, n := range c.Needs {
				needReady := w.when(n, run.Done, "")
				require.Less(t, needReady, w.when(c.ID(), run.Done, ""), "%s is ready after %s", c.ID(), n)
				if !slices.Contains(c.Awaits, n) {
					require.Less(t, needReady, applied, "%s starts after %s is ready", c.ID(), n)
				}
			}
		}
		alpha := w.when("shard/alpha", run.Running, "applying")
		require.Less(t, alpha, w.when("root-shard", run.Done, ""), "a new shard starts as soon as the root shard answers")
	})
}

func TestUpChangesAComponentWhenAllItNeedsIsReady(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		w.mustRun(t)
		for _, name := range []string{"demo-root", "demo-shard-alpha", "demo-front-proxy-main"} {
			w.rt.Edit("Deployment/kcp/"+name, func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"edited": "yes"}) })
		}
		w.slow()
		w.mustRun(t)
		require.Len(t, w.rt.Calls(), len([]string{"Lock", "Save", "Begin", "root", "alpha", "main", "Finish", "Unlock"}))
		for _, id := range []topology.ID{"shard/alpha", "front-proxy/main"} {
			require.Less(t, w.when("root-shard", run.Done, ""), w.when(id, run.Running, "applying"), id)
		}
		require.Equal(t, []string{"pending", "running container is starting", "running probe fails", "done ready 1/1, unchanged"},
			w.of("shard/beta"), "what is not changed is waited for anyway")
	})
}

func TestEventsOfAComponent(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		w.rt.States("root-shard", waiting("pulling image"), waiting("pulling image"), isReady())
		applied := len(w.mustRun(t).Plan.Of("root-shard"))
		require.Equal(t, []string{
			"pending", fmt.Sprintf("running applying %d objects", applied), "running started, waits for cache-server", "running pulling image", "done ready 1/1",
		}, w.of("root-shard"))
		pending := map[string][]string{}
		for _, c := range w.top.Components {
			got := w.of(string(c.ID()))
			require.Equal(t, "pending", got[0])
			require.Contains(t, got[len(got)-1], "done")
			require.Len(t, slices.Collect(filter(got, "done")), 1)
		}
		for _, e := range w.events {
			require.NotZero(t, e.Time)
			if e.Status == run.Pending {
				pending[e.Name] = e.Needs
			}
		}
		require.Equal(t, []string{"base/default", "etcd/alpha", "cache-server", "root-shard"}, pending["shard/alpha"])
	})
}

func TestEventsOfSteps(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		res := w.mustRun(t)
		require.Equal(t, []string{"running", "done passed"}, w.of("preflight"))
		require.Equal(t, []string{"running", "done 39 create, 0 change, 0 delete, 0 unchanged"}, w.of("plan"))
		require.Equal(t, []string{
			"running", fmt.Sprintf("done 4 authorities to create, %d certificates to create, next expiry 2000-12-31",
				res.PKI.Created()),
		}, w.of("certificates"))
		require.Equal(t, []string{
			"running a workspace on 2 shards",
			"done a workspace on each of root, alpha became Ready and was read through the front-proxy",
		}, w.of("canary"))
	})
}

// A shard that starts before the root shard knows the identities of kcp's APIs would only wait, ever longer.
func TestUpHoldsNewShardsUntilTheRootShardAnswers(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		w.slow()
		w.rt.Kcp.Script(fakekcp.GetExport, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not yet"), fakekcp.Export("shards.core.kcp.io", ""))
		w.mustRun(t)
		require.Greater(t, w.when("shard/alpha", run.Running, "applying"), w.when("root-shard", run.Running, "started"))
		require.Len(t, w.rt.Kcp.Requests(fakekcp.GetExport), 2+3, "it asked until it got all")
	})
}

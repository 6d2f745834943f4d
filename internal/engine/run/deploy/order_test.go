package deploy_test

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
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

// slow delays the readiness of every component.
func (w *world) slow() {
	for _, c := range w.Topology.Components {
		w.Runtime.States(c.ID(), runtest.Waiting("container is starting"), runtest.Waiting("probe fails"), runtest.IsReady())
	}
}

func TestUpWritesInOrder(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		calls := w.Runtime.Calls()
		require.Equal(t, []string{"Apply namespaces", "Lock", "Save", "Begin"}, calls[:4])
		require.Equal(t, []string{"Finish", "Unlock"}, calls[len(calls)-2:])
		require.Len(t, calls, 4+len(w.Topology.Components)+1+2, "each component is applied once, and roles of a kubeconfig after it")
		history, err := w.Runtime.History(t.Context())
		require.NoError(t, err)
		require.Len(t, history, 1)
		require.Equal(t, "the setup", string(history[0].Setup))
	})
}

func TestUpStartsWhatIsNewWithWhatItAwaits(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.slow()
		w.MustRun(t)
		for _, c := range w.Topology.Components {
			applied := w.When(c.ID(), run.Running, "applying")
			require.GreaterOrEqual(t, applied, 0, c.ID())
			for _, n := range c.Needs {
				needReady := w.When(n, run.Done, "")
				require.Less(t, needReady, w.When(c.ID(), run.Done, ""), "%s is ready after %s", c.ID(), n)
				if !slices.Contains(c.Awaits, n) {
					require.Less(t, needReady, applied, "%s starts after %s is ready", c.ID(), n)
				}
			}
		}
		alpha := w.When("shard/alpha", run.Running, "applying")
		require.Less(t, alpha, w.When("root-shard", run.Done, ""), "a new shard starts as soon as the root shard answers")
	})
}

func TestUpChangesAComponentWhenAllItNeedsIsReady(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		for _, name := range []string{"demo-root", "demo-shard-alpha", "demo-front-proxy-main"} {
			w.Runtime.Edit("Deployment/kcp/"+name, func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"edited": "yes"}) })
		}
		w.slow()
		w.MustRun(t)
		require.Len(t, w.Runtime.Calls(), len([]string{"Lock", "Save", "Begin", "root", "alpha", "main", "Finish", "Unlock"}))
		for _, id := range []topology.ID{"shard/alpha", "front-proxy/main"} {
			require.Less(t, w.When("root-shard", run.Done, ""), w.When(id, run.Running, "applying"), id)
		}
		require.Equal(t, []string{"pending", "running container is starting", "running probe fails", "done ready 1/1, unchanged"},
			w.Of("shard/beta"), "what is not changed is waited for anyway")
	})
}

func TestEventsOfAComponent(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.Runtime.States("root-shard", runtest.Waiting("pulling image"), runtest.Waiting("pulling image"), runtest.IsReady())
		applied := len(w.MustRun(t).Plan.Of("root-shard"))
		require.Equal(t, []string{
			"pending", fmt.Sprintf("running applying %d objects", applied), "running started, waits for cache-server", "running pulling image", "done ready 1/1",
		}, w.Of("root-shard"))
		pending := map[string][]string{}
		for _, c := range w.Topology.Components {
			got := w.Of(string(c.ID()))
			require.Equal(t, "pending", got[0])
			require.Contains(t, got[len(got)-1], "done")
			require.Len(t, slices.Collect(runtest.Filter(got, "done")), 1)
		}
		for _, e := range w.Events {
			require.NotZero(t, e.Time)
			if e.Status == run.Pending {
				pending[e.Name] = e.Needs
			}
		}
		require.Equal(t, []string{"base/default", "etcd/alpha", "cache-server", "root-shard"}, pending["shard/alpha"])
	})
}

func TestEventsOfSteps(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		res := w.MustRun(t)
		require.Equal(t, []string{"running", "done passed"}, w.Of("preflight"))
		require.Equal(t, []string{"running", "done 39 create, 0 change, 0 delete, 0 unchanged"}, w.Of("plan"))
		require.Equal(t, []string{
			"running", fmt.Sprintf("done 4 authorities to create, %d certificates to create, next expiry 2000-12-31",
				res.PKI.Created()),
		}, w.Of("certificates"))
		require.Equal(t, []string{
			"running a workspace on 2 shards",
			"done a workspace on each of root, alpha became Ready and was read through the front-proxy",
		}, w.Of("canary"))
	})
}

// A shard that starts before the root shard knows the identities of kcp's APIs would only wait, ever longer.
func TestUpHoldsNewShardsUntilTheRootShardAnswers(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.slow()
		w.Runtime.Kcp.Script(fakekcp.GetExport, fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not yet"), fakekcp.Export("shards.core.kcp.io", ""))
		w.MustRun(t)
		require.Greater(t, w.When("shard/alpha", run.Running, "applying"), w.When("root-shard", run.Running, "started"))
		require.Len(t, w.Runtime.Kcp.Requests(fakekcp.GetExport), 2+3, "it asked until it got all")
	})
}

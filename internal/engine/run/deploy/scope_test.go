package deploy_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// edit changes the workloads of components.
func (w *world) edit(ids ...topology.ID) {
	for _, id := range ids {
		w.Runtime.Edit("Deployment/kcp/"+w.Topology.Component(id).Object(), func(o *unstructured.Unstructured) { o.SetLabels(nil) })
	}
}

func TestOnlySomeComponents(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.edit("root-shard", "shard/alpha", "front-proxy/main")
		w.Runtime.States("root-shard", runtest.Waiting("of no interest"))
		w.Up.Options.Only = []topology.ID{"shard/alpha", "front-proxy/main"}
		w.MustRun(t)
		require.ElementsMatch(t, []string{"Lock", "Save", "Begin", "Apply shard/alpha", "Apply front-proxy/main", "Finish", "Unlock"}, w.Runtime.Calls())
		require.Empty(t, w.Of("root-shard"))

		w.Up.Options.Only = nil
		w.Runtime.States("root-shard", runtest.IsReady())
		w.MustRun(t)
		require.Contains(t, w.Runtime.Calls(), "Apply root-shard", "the next run finds what was left out")
	})
}

func TestOnlyLeavesWhatIsNewAndWhatIsGone(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		created := len(w.Runtime.Kcp.Requests(fakekcp.CreateWorkspace))
		w = newWorld(t, topologytest.Build(t, runtest.Minimal+"spec: {rootShard: {etcd: {embedded: {}}}, shards: [{name: beta}]}\n"), w.Runtime)
		w.Runtime.Use(w.Topology)
		w.Up.Options.AllowDataChange = runtest.Everything // the root shard's certificate for it is to be deleted, some day
		w.Up.Options.Only = []topology.ID{"root-shard"}
		res := w.MustRun(t)
		require.Empty(t, res.Plan.Deletions())
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply root-shard", "Replace front-proxy/main", "Finish", "Unlock"}, w.Runtime.Calls(),
			"its data is in another etcd")
		require.Len(t, w.Runtime.Kcp.Requests(fakekcp.CreateWorkspace), created+1, "no canary for a shard that is not there yet")
	})
}

func TestOnlyDeletesWhatIsRemoved(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		w = newWorld(t, topologytest.Build(t, strings.Replace(runtest.Full, "{name: admin}, ", "", 1)), w.Runtime)
		w.Runtime.Use(w.Topology)
		w.edit("root-shard")
		w.Up.Options.Only = []topology.ID{"kubeconfig/admin"}
		p := w.MustRun(t).Plan
		require.Empty(t, p.Deletions())
		require.True(t, slices.ContainsFunc(p.Items, func(it plan.Item) bool {
			return it.Component == "kubeconfig/admin" && it.Action == plan.Unchanged
		}), "a runtime remembers the kinds of what a plan does not delete")

		w.Up.Options.Removed = w.Up.Options.Only
		w.Up.Options.Edit = func() error { return nil }
		w.Runtime.Forget()
		var deleted []topology.ID
		for _, it := range w.MustRun(t).Plan.Deletions() {
			deleted = append(deleted, it.Component)
		}
		require.Equal(t, []topology.ID{"kubeconfig/admin"}, slices.Compact(deleted))
		require.Equal(t, []string{"Lock", "Save", "Begin", "Finish", "Unlock"}, w.Runtime.Calls(), "the root shard stays as it is")

		w.Up.Options.Only, w.Up.Options.Removed = nil, nil
		require.Empty(t, w.MustRun(t).Plan.Deletions(), "nothing is left")
	})
}

func TestOnlyTheConflictsOfSomeComponents(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.edit("root-shard", "shard/alpha")
		w.Runtime.On("Plan", func() error {
			w.Runtime.Conflicts = []plan.Conflict{{Ref: w.Runtime.Ref("Deployment/kcp/demo-root"), Field: ".spec"}}
			return nil
		})
		w.Up.Options.Only = []topology.ID{"shard/alpha"}
		w.MustRun(t)
		w.Up.Options.Only = []topology.ID{"root-shard"}
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Conflict, "1 field is owned by other field managers; nothing was written")
	})
}

func TestSerialRunChangesOneAfterAnother(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		changed := []topology.ID{"cache-server", "root-shard", "shard/alpha", "shard/beta", "virtual-workspaces/vw", "front-proxy/main"}
		w.edit(changed...)
		w.slow()
		w.MustRun(t)
		require.Equal(t, []string{
			"Lock", "Save", "Begin", "Apply cache-server", "Apply root-shard", "Apply shard/alpha", "Apply shard/beta",
			"Apply virtual-workspaces/vw", "Apply front-proxy/main", "Finish", "Unlock",
		}, w.Runtime.Calls())
		for i := 1; i < len(changed); i++ {
			require.Less(t, w.When(changed[i-1], run.Done, ""), w.When(changed[i], run.Running, "applying"), changed[i])
		}
	})
}

func TestParallelRunChangesSomeShardsAtATime(t *testing.T) {
	shards := runtest.Minimal + "spec: {shards: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}]}\n"
	changed := []topology.ID{"root-shard", "shard/a", "shard/b", "shard/c", "shard/d", "shard/e", "front-proxy/main"}
	for parallel, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 3, 10: 5} {
		t.Run(strconv.Itoa(parallel), func(t *testing.T) {
			inWorld(t, shards, func(t *testing.T, w *world) {
				w.MustRun(t)
				w.edit(changed...)
				w.slow()
				w.Up.Options.Parallel = parallel
				most, rolling := 0, map[string]bool{}
				w.OnEach = func(e run.Event) {
					switch {
					case e.Status == run.Running && strings.HasPrefix(e.Message, "applying"):
						rolling[e.Name] = true
						if len(rolling) > 1 && (rolling["root-shard"] || rolling["front-proxy/main"]) {
							t.Errorf("%v roll at the same time", rolling)
						}
					case e.Status == run.Done:
						delete(rolling, e.Name)
					}
					most = max(most, len(rolling))
				}
				w.MustRun(t)
				require.Equal(t, want, most)
				require.Empty(t, rolling)
			})
		})
	}
}

func TestParallelRunBeginsNothingAfterAFailure(t *testing.T) {
	inWorld(t, runtest.Minimal+"spec: {shards: [{name: a}, {name: b}, {name: c}, {name: d}]}\n", func(t *testing.T, w *world) {
		w.MustRun(t)
		w.edit("shard/a", "shard/b", "shard/c", "shard/d", "front-proxy/main")
		stuck := runtest.Waiting("CrashLoopBackOff")
		stuck.Stuck = true
		w.Runtime.States("shard/b", stuck)
		w.Up.Options.Parallel = 2
		_, err := w.Run(t)
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.Contains(t, w.Runtime.Calls(), "Apply shard/c", "it began when the first one was done")
		require.NotContains(t, w.Runtime.Calls(), "Apply shard/d")
		require.NotContains(t, w.Runtime.Calls(), "Apply front-proxy/main")
	})
}

func TestSerialRunStopsWhereItFails(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.edit("root-shard", "shard/alpha", "front-proxy/main")
		stuck := runtest.Waiting("CrashLoopBackOff")
		stuck.Stuck = true
		w.Runtime.States("shard/alpha", stuck)
		_, err := w.Run(t)
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.NotContains(t, w.Runtime.Calls(), "Apply front-proxy/main", "what serves is left alone")
	})
}

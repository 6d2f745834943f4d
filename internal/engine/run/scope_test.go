package run_test

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
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// edit changes the workloads of components.
func (w *world) edit(ids ...topology.ID) {
	for _, id := range ids {
		w.rt.Edit("Deployment/kcp/"+w.top.Component(id).Object(), func(o *unstructured.Unstructured) { o.SetLabels(nil) })
	}
}

func TestOnlySomeComponents(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.edit("root-shard", "shard/alpha", "front-proxy/main")
		w.rt.States("root-shard", waiting("of no interest"))
		w.up.Options.Only = []topology.ID{"shard/alpha", "front-proxy/main"}
		w.mustRun(t)
		require.ElementsMatch(t, []string{"Lock", "Save", "Begin", "Apply shard/alpha", "Apply front-proxy/main", "Finish", "Unlock"}, w.rt.Calls())
		require.Empty(t, w.of("root-shard"))

		w.up.Options.Only = nil
		w.rt.States("root-shard", isReady())
		w.mustRun(t)
		require.Contains(t, w.rt.Calls(), "Apply root-shard", "the next run finds what was left out")
	})
}

func TestOnlyLeavesWhatIsNewAndWhatIsGone(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		created := len(w.rt.Kcp.Requests(fakekcp.CreateWorkspace))
		w = newWorld(t, topologytest.Build(t, minimal+"spec: {rootShard: {etcd: {embedded: {}}}, shards: [{name: beta}]}\n"), w.rt)
		w.rt.Use(w.top)
		w.up.Options.AllowDataChange = everything // the root shard's certificate for it is to be deleted, some day
		w.up.Options.Only = []topology.ID{"root-shard"}
		res := w.mustRun(t)
		require.Empty(t, res.Plan.Deletions())
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply root-shard", "Replace front-proxy/main", "Finish", "Unlock"}, w.rt.Calls(),
			"its data is in another etcd")
		require.Len(t, w.rt.Kcp.Requests(fakekcp.CreateWorkspace), created+1, "no canary for a shard that is not there yet")
	})
}

func TestOnlyDeletesWhatIsRemoved(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		w.mustRun(t)
		w = newWorld(t, topologytest.Build(t, strings.Replace(full, "{name: admin}, ", "", 1)), w.rt)
		w.rt.Use(w.top)
		w.edit("root-shard")
		w.up.Options.Only = []topology.ID{"kubeconfig/admin"}
		p := w.mustRun(t).Plan
		require.Empty(t, p.Deletions())
		require.True(t, slices.ContainsFunc(p.Items, func(it plan.Item) bool {
			return it.Component == "kubeconfig/admin" && it.Action == plan.Unchanged
		}), "a runtime remembers the kinds of what a plan does not delete")

		w.up.Options.Removed = w.up.Options.Only
		w.up.Options.Edit = func() error { return nil }
		w.rt.Forget()
		var deleted []topology.ID
		for _, it := range w.mustRun(t).Plan.Deletions() {
			deleted = append(deleted, it.Component)
		}
		require.Equal(t, []topology.ID{"kubeconfig/admin"}, slices.Compact(deleted))
		require.Equal(t, []string{"Lock", "Save", "Begin", "Finish", "Unlock"}, w.rt.Calls(), "the root shard stays as it is")

		w.up.Options.Only, w.up.Options.Removed = nil, nil
		require.Empty(t, w.mustRun(t).Plan.Deletions(), "nothing is left")
	})
}

func TestOnlyTheConflictsOfSomeComponents(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.edit("root-shard", "shard/alpha")
		w.rt.On("Plan", func() error {
			w.rt.Conflicts = []plan.Conflict{{Ref: w.rt.Ref("Deployment/kcp/demo-root"), Field: ".spec"}}
			return nil
		})
		w.up.Options.Only = []topology.ID{"shard/alpha"}
		w.mustRun(t)
		w.up.Options.Only = []topology.ID{"root-shard"}
		_, err := w.run(t)
		requireError(t, err, clierr.Conflict, "1 field is owned by other field managers; nothing was written")
	})
}

func TestSerialRunChangesOneAfterAnother(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		w.mustRun(t)
		changed := []topology.ID{"cache-server", "root-shard", "shard/alpha", "shard/beta", "virtual-workspaces/vw", "front-proxy/main"}
		w.edit(changed...)
		w.slow()
		w.mustRun(t)
		require.Equal(t, []string{
			"Lock", "Save", "Begin", "Apply cache-server", "Apply root-shard", "Apply shard/alpha", "Apply shard/beta",
			"Apply virtual-workspaces/vw", "Apply front-proxy/main", "Finish", "Unlock",
		}, w.rt.Calls())
		for i := 1; i < len(changed); i++ {
			require.Less(t, w.when(changed[i-1], run.Done, ""), w.when(changed[i], run.Running, "applying"), changed[i])
		}
	})
}

func TestParallelRunChangesSomeShardsAtATime(t *testing.T) {
	shards := minimal + "spec: {shards: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}]}\n"
	changed := []topology.ID{"root-shard", "shard/a", "shard/b", "shard/c", "shard/d", "shard/e", "front-proxy/main"}
	for parallel, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 3, 10: 5} {
		t.Run(strconv.Itoa(parallel), func(t *testing.T) {
			inWorld(t, shards, func(t *testing.T, w *world) {
				w.mustRun(t)
				w.edit(changed...)
				w.slow()
				w.up.Options.Parallel = parallel
				most, rolling := 0, map[string]bool{}
				w.onEach = func(e run.Event) {
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
				w.mustRun(t)
				require.Equal(t, want, most)
				require.Empty(t, rolling)
			})
		})
	}
}

func TestParallelRunBeginsNothingAfterAFailure(t *testing.T) {
	inWorld(t, minimal+"spec: {shards: [{name: a}, {name: b}, {name: c}, {name: d}]}\n", func(t *testing.T, w *world) {
		w.mustRun(t)
		w.edit("shard/a", "shard/b", "shard/c", "shard/d", "front-proxy/main")
		stuck := waiting("CrashLoopBackOff")
		stuck.Stuck = true
		w.rt.States("shard/b", stuck)
		w.up.Options.Parallel = 2
		_, err := w.run(t)
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.Contains(t, w.rt.Calls(), "Apply shard/c", "it began when the first one was done")
		require.NotContains(t, w.rt.Calls(), "Apply shard/d")
		require.NotContains(t, w.rt.Calls(), "Apply front-proxy/main")
	})
}

func TestSerialRunStopsWhereItFails(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.edit("root-shard", "shard/alpha", "front-proxy/main")
		stuck := waiting("CrashLoopBackOff")
		stuck.Stuck = true
		w.rt.States("shard/alpha", stuck)
		_, err := w.run(t)
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.NotContains(t, w.rt.Calls(), "Apply front-proxy/main", "what serves is left alone")
	})
}

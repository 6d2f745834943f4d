package deploy_test

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestComponentsAreAskedWhetherTheyServe(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.Runtime.Kcp.Script("shard/alpha readyz", fakekcp.NotReady("informer-sync"), fakekcp.NotReady("informer-sync", "etcd"))
		w.MustRun(t)
		require.Equal(t, []string{
			"running /readyz: informer-sync not ready", "running /readyz: informer-sync, etcd not ready", "done ready 1/1",
		}, w.Of("shard/alpha")[3:])
		asked := map[string][]string{}
		for _, r := range w.Runtime.Kcp.Requests(fakekcp.Readyz) {
			require.Equal(t, "kcpctl", r.User)
			asked[r.Server] = r.Groups
		}
		masters, admin := []string{"system:masters"}, []string{"system:kcp:admin"}
		require.Equal(t, map[string][]string{
			"cache-server": masters, "root-shard": masters, "shard/alpha": masters, "shard/beta": masters,
			"virtual-workspaces/vw": masters, "front-proxy/main": admin,
		}, asked)
	})
}

func TestShardsAreWaitedForUntilTheyAreRegistered(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		root, alpha := w.Topology.Root(), w.Topology.Component("shard/alpha")
		w.Up.Options.SkipCanary = true // it reads shards too
		w.Runtime.Kcp.Script(fakekcp.GetShard,
			fakekcp.Shard(kcp.Shard{Name: "root", BaseURL: root.URL}), // the root shard's turn
			fakekcp.Refuse(http.StatusForbidden, "Forbidden", "no access yet"),
			fakekcp.Refuse(http.StatusNotFound, "NotFound", "no such shard"),
			fakekcp.Shard(kcp.Shard{Name: "alpha", BaseURL: "https://old:6443"}),
		)
		w.MustRun(t)
		require.Equal(t, []string{
			"running read shard alpha: no access yet",
			"running not yet registered with the root shard",
			"running registered with the URL https://old:6443, not yet " + alpha.URL,
			"done ready 1/1",
		}, w.Of("shard/alpha")[3:])
		for _, r := range w.Runtime.Kcp.Requests(fakekcp.GetShard) {
			require.Equal(t, "root-shard", r.Server)
		}
	})
}

// A run that asked for the list of all shards for each shard would read the square of their number.
func TestShardsAreReadOneByOne(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		require.Empty(t, w.Runtime.Kcp.Requests(fakekcp.ListShards))
	})
}

func TestComponentThatDoesNotServeInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		answer fakekcp.Answer
		want   string
	}{
		"not ready": {fakekcp.NotReady("etcd"), "(timed out after 1m0s): /readyz: etcd not ready"},
		"no answer": {fakekcp.Hang(), "(timed out after 1m0s)"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
				w.Up.Options.Timeout = time.Minute
				w.Runtime.Kcp.Always("front-proxy/main readyz", tc.answer)
				_, err := w.Run(t)
				runtest.RequireError(t, err, clierr.NotReady, "front-proxy/main: not ready "+tc.want+"\n1 component that needs them was skipped")
			})
		})
	}
}

func TestCanaryOnEveryShardThroughTheFrontProxy(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		created := w.Runtime.Kcp.Requests(fakekcp.CreateWorkspace)
		require.Len(t, created, 3)
		for _, r := range created {
			require.Equal(t, "front-proxy/main", r.Server)
		}
		require.Empty(t, w.Runtime.Kcp.Workspaces())
	})
}

// The scheduler of workspaces knows the shards from the cache, to which the root shard replicates at most five objects
// per second.
func TestNewShardsAreReplicatedToTheCacheServer(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		w.MustRun(t)
		require.Equal(t, []string{"root shards root:alpha", "root shards root:beta", "root shards root:root"}, w.Runtime.Kcp.InCache())
		w.edit("shard/alpha")
		w.MustRun(t)
		require.Len(t, w.Runtime.Kcp.Requests(fakekcp.CreateCached+"shards"), 3, "only new ones")
	})
}

func TestCanaryOfANewShardDoesNotWaitForOthers(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.Runtime.States("shard/alpha", runtest.Waiting("0/1 ready"))
		begun, waits := false, false
		w.OnEach = func(e run.Event) {
			begun = begun || e.Name == "canary"
			waits = waits || e.Name == "shard/alpha" && e.Message == "0/1 ready"
			if begun && waits {
				w.Runtime.States("shard/alpha", runtest.IsReady())
			}
		}
		w.MustRun(t)
		require.Equal(t, "running a workspace on 2 shards", w.Of("canary")[0])
	})
}

func TestCanaryAfterAChangeWaitsUntilAllChangesAreMade(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.MustRun(t)
		changed := []topology.ID{"root-shard", "shard/alpha", "front-proxy/main"}
		w.edit(changed...)
		w.MustRun(t)
		for _, id := range changed {
			require.Greater(t, w.When("canary", run.Running, "a workspace"), w.When(id, run.Done, ""), id)
		}
	})
}

func TestCanaryIsGivenUpIfAComponentFails(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.Up.Options.Timeout = time.Minute
		w.Runtime.States("shard/alpha", runtest.Waiting("0/1 ready"))
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.NotReady, "shard/alpha: not ready (timed out after 1m0s): 0/1 ready")
		require.Equal(t, "skipped not all components serve", w.Of("canary")[len(w.Of("canary"))-1])
	})
}

func TestCanaryThatFailsIsTriedAgainByTheNextRun(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.Up.Options.Timeout = time.Minute
		w.Runtime.Kcp.Always(fakekcp.GetWorkspace, fakekcp.Workspace("Scheduling", "Unschedulable", "no shard"))
		_, err := w.Run(t)
		require.Error(t, err)
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		canary := func(shard string) string {
			return shard + ": canary: workspace root:kcpctl-canary-NAME: timed out after 1m0s: scheduling: Unschedulable: no shard"
		}
		require.Equal(t, canary("root-shard")+"\n"+canary("shard/alpha"),
			regexp.MustCompile(`canary-[a-z]+-[a-z0-9]+`).ReplaceAllString(err.Error(), "canary-NAME"))
		require.Contains(t, w.Of("canary"), "running alpha, root: scheduling: Unschedulable: no shard")
		require.NotContains(t, w.Runtime.Calls(), "Finish")

		w.Runtime.Kcp.Always(fakekcp.GetWorkspace, fakekcp.Workspace("Ready", "", ""))
		w.MustRun(t)
		require.Equal(t, []string{"Lock", "Save", "Begin", "Finish", "Unlock"}, w.Runtime.Calls())
		w.MustRun(t)
		require.Empty(t, w.Runtime.Calls())
	})
}

// A cordoned shard takes no workspaces (kcp: pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
func TestNoCanaryOnCordonedShards(t *testing.T) {
	for name, tc := range map[string]struct {
		cordoned []string
		want     string
	}{
		"one": {[]string{"alpha"}, "done a workspace on each of root became Ready and was read through the front-proxy"},
		"all": {[]string{"root", "alpha"}, "done none: every shard is cordoned"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
				for _, c := range w.Topology.Shards() {
					w.Runtime.Kcp.Always("GET /clusters/root/apis/core.kcp.io/v1alpha1/shards/"+c.ShardName(), fakekcp.Shard(
						kcp.Shard{Name: c.ShardName(), BaseURL: c.URL, Cordoned: slices.Contains(tc.cordoned, c.ShardName())}))
				}
				w.MustRun(t)
				require.Len(t, w.Runtime.Kcp.Requests(fakekcp.CreateWorkspace), 2-len(tc.cordoned))
				require.Equal(t, tc.want, w.Of("canary")[len(w.Of("canary"))-1])
			})
		})
	}
}

func TestCanaryCanBeSkipped(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.Up.Options.SkipCanary = true
		w.MustRun(t)
		require.Empty(t, w.Runtime.Kcp.Requests(fakekcp.CreateWorkspace))
		require.Empty(t, w.Of("canary"))
	})
}

// The kubeconfig itself does not wait for kcp, and its bindings go when its entry goes.
func TestClusterRolesOfAKubeconfig(t *testing.T) {
	const enter = "root:team demo:kubeconfig:ops:" + topology.AccessRole
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		refusals := 0
		w.Runtime.On("Apply kubeconfig/ops", func() error {
			if refusals++; refusals == 2 {
				return errors.New("no such workspace")
			}
			return nil
		})
		placed := func() (out []string) {
			known, err := w.Runtime.Record(t.Context())
			require.NoError(t, err)
			for _, o := range known.Placed {
				out = append(out, o.Workspace+" "+o.Name)
			}
			return out
		}
		for _, it := range w.MustRun(t).Plan.Items {
			if it.Workspace != "" {
				require.Equal(t, "kcpctl:demo:kubeconfig:ops", it.Want.Object["subjects"].([]any)[0].(map[string]any)["name"])
			}
		}
		require.Equal(t, []string{"root:team demo:kubeconfig:ops:edit", enter, "root:team demo:kubeconfig:ops:view"}, placed())
		require.Contains(t, w.Of("kubeconfig/ops"), "running no such workspace")
		require.Equal(t, 3, refusals, "its Secret is applied before its bindings, which are applied again")
		w.Up.Topology = topologytest.Build(t, strings.Replace(runtest.Full, "[view, edit]", "[view]", 1))
		w.Runtime.Becomes(w.Up.Topology)
		require.Equal(t, "demo:kubeconfig:ops:edit", w.MustRun(t).Plan.Deletions()[0].Name)
		require.Equal(t, []string{enter, "root:team demo:kubeconfig:ops:view"}, placed())
	})
}

// The workspace of the bindings can be one of the setup, which is created by the same run.
func TestClusterRolesAreBoundInAWorkspaceOfTheSetup(t *testing.T) {
	inWorld(t, runtest.Full+"  workspaces: [{name: team}]\n", func(t *testing.T, w *world) {
		w.Up.Options.Timeout = time.Hour // without a limit, the run would not end
		created, calls := false, 0
		w.Runtime.On("Apply workspace/root:team", func() error { created = true; return nil })
		w.Runtime.On("Apply kubeconfig/ops", func() error {
			if calls++; calls > 1 && !created {
				return errors.New("no such workspace")
			}
			return nil
		})
		w.MustRun(t)
		require.True(t, created)
	})
}

// A binding of another user is not overwritten, and not waited for.
func TestClusterRolesOfAKubeconfigConflict(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		calls := 0
		w.Runtime.On("Apply kubeconfig/ops", func() error {
			if calls++; calls == 1 {
				return nil
			}
			return plan.ConflictsError([]plan.Conflict{{Object: "ClusterRoleBinding", Field: "subjects", Manager: "kubectl"}})
		})
		_, err := w.Up.Run(t.Context())
		require.ErrorContains(t, err, `subjects is owned by "kubectl"`)
		require.Equal(t, 2, calls)
	})
}

package deploy_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakeruntime"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestConflictWritesNothing(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.Runtime.Conflicts = []plan.Conflict{{Field: ".spec.replicas"}, {Field: ".spec.paused"}}
		res, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Conflict, "2 fields are owned by other field managers; nothing was written")
		require.Equal(t, w.Runtime.Conflicts, res.Plan.Conflicts)
		require.Empty(t, w.Runtime.Calls())
	})
}

func TestDryRunWritesNothing(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.Up.Options.DryRun = true
		res := w.MustRun(t)
		require.False(t, res.Plan.Empty())
		require.Empty(t, w.Runtime.Calls())
		require.Empty(t, w.Runtime.Kcp.Requests(""))
		require.Empty(t, w.Runtime.PKI().CAs)
	})
}

func TestSecondRunOnlyWaits(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		first := w.MustRun(t)
		asked := len(w.Runtime.Kcp.Requests(""))
		w.Runtime.States("shard/alpha", runtest.Waiting("container is starting"), runtest.IsReady())

		second := w.MustRun(t)
		require.True(t, second.Plan.Empty())
		require.Equal(t, first.PKI.State, second.PKI.State)
		require.Empty(t, w.Runtime.Calls())
		require.Len(t, w.Runtime.Kcp.Requests(""), asked, "kcp is not bothered")
		require.Equal(t, []string{"pending", "running container is starting", "done ready 1/1, unchanged"}, w.Of("shard/alpha"))
		require.Equal(t, []string{"pending", "done ready 1/1, unchanged"}, w.Of("root-shard"))
	})
}

func TestDeletionsComeLast(t *testing.T) {
	inWorld(t, runtest.Minimal+"spec: {frontProxies: [{name: main}, {name: second}]}\n", func(t *testing.T, w *world) {
		w.MustRun(t)
		objects := func() int {
			all, err := w.Runtime.Objects(t.Context())
			require.NoError(t, err)
			return len(slices.DeleteFunc(all, func(it plan.Item) bool { return it.Component != "front-proxy/second" }))
		}
		require.NotZero(t, objects())
		before := objects()
		w = newWorld(t, topologytest.Build(t, runtest.Minimal), w.Runtime)
		w.Runtime.Use(w.Topology)
		w.Runtime.On("Finish", func() error {
			require.Equal(t, before, objects())
			return nil
		})
		res := w.MustRun(t)
		require.NotEmpty(t, res.Plan.Deletions())
		require.Zero(t, objects())
	})
}

// A run ends as soon as something fails, and reports what and why.
func TestErrorsPassThrough(t *testing.T) {
	boom := clierr.New(clierr.BadInput, "do something", "boom")
	for call, tc := range map[string]struct {
		code  int
		want  string
		calls []string // those that were made before it
	}{
		"Record":           {clierr.BadInput, "boom", nil},
		"Load":             {clierr.BadInput, "boom", nil},
		"Plan":             {clierr.BadInput, "boom", nil},
		"Apply namespaces": {clierr.BadInput, "boom", nil},
		"Lock":             {clierr.BadInput, "boom", []string{"Apply namespaces"}},
		"Save":             {clierr.BadInput, "save memory: boom", []string{"Apply namespaces", "Lock", "Unlock"}},
		"Begin":            {clierr.BadInput, "boom", []string{"Apply namespaces", "Lock", "Save", "Unlock"}},
		"Apply etcd/root": {clierr.BadInput, "etcd/root: boom\n3 components that need them were skipped",
			[]string{"Apply namespaces", "Lock", "Save", "Begin", "Apply base/default", "Unlock"}},
		"Finish": {clierr.BadInput, "boom", []string{
			"Apply namespaces", "Lock", "Save", "Begin", "Apply base/default", "Apply etcd/root", "Apply root-shard",
			"Apply front-proxy/main", "Apply kubeconfig/admin", "Unlock",
		}},
	} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
				w.Runtime.On(call, func() error { return boom })
				_, err := w.Run(t)
				runtest.RequireError(t, err, tc.code, tc.want)
				require.Equal(t, "do something", clierr.Hint(err))
				require.ElementsMatch(t, tc.calls, w.Runtime.Calls())
			})
		})
	}
}

func TestRefusedLockKeepsItsCode(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		held := clierr.New(clierr.Conflict, "wait until that run is done", "locked by another run")
		w.Runtime.On("Lock", func() error { return held })
		_, err := w.Run(t)
		require.ErrorIs(t, err, held)
		require.Equal(t, clierr.Conflict, clierr.Code(err))
	})
}

func TestStuckComponentEndsTheWait(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		stuck := runtest.Waiting("Pod demo-etcd-root-0: ImagePullBackOff: etcd:v0")
		stuck.Stuck, stuck.Detail = true, []string{"line 1", "line 2"}
		w.Runtime.States("etcd/root", stuck)
		start := time.Now()
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.NotReady, `etcd/root: not ready: Pod demo-etcd-root-0: ImagePullBackOff: etcd:v0
    line 1
    line 2
4 components that need them were skipped`)
		require.InDelta(t, 30*time.Second, time.Since(start), float64(time.Second), "that long it may heal by itself")
		require.Equal(t, "failed not ready: Pod demo-etcd-root-0: ImagePullBackOff: etcd:v0", w.Of("etcd/root")[4])
		require.Equal(t, []string{"pending", "skipped etcd/root failed"}, w.Of("root-shard"))
		require.Equal(t, "skipped etcd/root failed", w.Of("front-proxy/main")[1], "the root shard was skipped, it did not fail")
		require.Contains(t, w.Of("etcd/alpha"), "done ready 1/1", "others go on")
		require.NotContains(t, w.Runtime.Calls(), "Finish")
		require.Contains(t, w.Runtime.Calls(), "Unlock")
	})
}

// A component that a command repairs names the command.
func TestStuckComponentNamesItsRepair(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		stuck := runtest.Waiting("Pod demo-etcd-root-1: CrashLoopBackOff: exit code 1")
		stuck.Stuck, stuck.Next = true, "kcpctl etcd replace-member demo-etcd-root-1"
		w.Runtime.States("etcd/root", stuck)
		_, err := w.Run(t)
		require.ErrorContains(t, err, "etcd/root: not ready: Pod demo-etcd-root-1: CrashLoopBackOff")
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.Equal(t, "repair it with kcpctl etcd replace-member demo-etcd-root-1, then rerun the command; completed work is kept", clierr.Hint(err))
	})
}

func TestStuckComponentMayHeal(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		stuck, start := runtest.Waiting("ImagePullBackOff"), time.Now()
		stuck.Stuck = true
		w.Runtime.States("etcd/root", stuck)
		w.Runtime.On("State etcd/root", func() error {
			switch passed := time.Since(start); {
			case passed > 2*time.Minute:
				w.Runtime.States("etcd/root", runtest.IsReady())
			case passed > 20*time.Second && passed < 25*time.Second, passed > 45*time.Second:
				w.Runtime.States("etcd/root", runtest.Waiting("container is starting"))
			default:
				w.Runtime.States("etcd/root", stuck)
			}
			return nil
		})
		w.MustRun(t)
		require.Greater(t, time.Since(start), 2*time.Minute)
	})
}

func TestAskingForAStateMayFail(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		asked := 0
		w.Runtime.On("State etcd/root", func() error {
			if asked++; asked < 3 {
				return errors.New("connection lost")
			}
			return nil
		})
		w.MustRun(t)
		require.Contains(t, w.Of("etcd/root"), "running connection lost")
	})
}

func TestTimeout(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		w.Up.Options.Timeout = 5 * time.Minute
		w.Runtime.States("root-shard", runtest.Waiting("0/1 ready"))
		start := time.Now()
		_, err := w.Run(t)
		runtest.RequireError(t, err, clierr.NotReady,
			"root-shard: not ready (timed out after 5m0s): 0/1 ready\n3 components that need them were skipped")
		require.Equal(t, 5*time.Minute, time.Since(start))
		require.NotContains(t, w.Runtime.Calls(), "Finish")
	})
}

func TestInterrupted(t *testing.T) {
	for name, tc := range map[string]struct {
		script func(w *world)
		at     string // what is waited for when Ctrl-C is pressed

		interrupted []string
		// others are interrupted or not started: the kubeconfig and new servers start while they wait for others.
		others []string
	}{
		"while a component starts": {func(w *world) { w.Runtime.States("root-shard", runtest.Waiting("0/1 ready")) }, "0/1 ready", []string{"root-shard"}, []string{"front-proxy/main", "kubeconfig/admin", "shard/alpha"}},
		"while kcp starts":         {func(w *world) { w.Runtime.Kcp.Always("root-shard readyz", fakekcp.NotReady("etcd")) }, "/readyz: etcd not ready", []string{"root-shard"}, []string{"front-proxy/main", "kubeconfig/admin", "shard/alpha"}},
		"in the canary":            {func(w *world) { w.Runtime.Kcp.Always(fakekcp.GetWorkspace, fakekcp.Workspace("", "", "")) }, "alpha, root: not scheduled", []string{"canary"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
				tc.script(w)
				ctx, cancel := context.WithCancelCause(t.Context())
				w.Up.Options.Timeout = time.Hour
				w.OnEach = func(e run.Event) {
					if e.Message == tc.at {
						cancel(context.Canceled)
					}
				}
				_, err := w.Up.Run(ctx)
				runtest.RequireError(t, err, clierr.Interrupted, "interrupted; completed work is kept")
				require.NotContains(t, w.Runtime.Calls(), "Finish")
				require.Contains(t, w.Runtime.Calls(), "Unlock")
				for _, e := range w.Events {
					require.NotContains(t, []run.Status{run.Failed, run.Skipped}, e.Status, "%s: nothing has failed", e.Name)
				}
				require.Subset(t, w.In(run.Interrupted), tc.interrupted)
				ended := slices.DeleteFunc(slices.Concat(w.In(run.Interrupted), w.In(run.NotStarted)), func(name string) bool {
					return name == "etcd/alpha" // it needs no other component: it is done by then, or not
				})
				require.ElementsMatch(t, slices.Concat(tc.interrupted, tc.others), ended)

				w.OnEach = func(run.Event) {}
				w.Runtime.Kcp.Always("root-shard readyz", fakekcp.Answer{Code: 200, Body: "ok"})
				w.Runtime.Kcp.Always(fakekcp.GetWorkspace, fakekcp.Workspace("Ready", "", ""))
				w.Runtime.States("root-shard", runtest.IsReady())
				w.MustRun(t)
				require.Contains(t, w.Runtime.Calls(), "Finish", "the same command goes on")
				require.Contains(t, w.Of("canary")[len(w.Of("canary"))-1], "done")
			})
		})
	}
}

func TestAnotherRunWroteBeforeTheLock(t *testing.T) {
	inWorld(t, runtest.Sharded, func(t *testing.T, w *world) {
		theirs := pkitest.Issue(t, w.Topology, time.Now())
		w.Runtime.On("Lock", func() error {
			w.Runtime.OtherRun(theirs)
			return nil
		})
		res := w.MustRun(t)
		require.Empty(t, res.PKI.CAs, "no authority is made again")
		require.Equal(t, theirs.CAs, w.Runtime.PKI().CAs)
		require.Equal(t, []string{"Apply namespaces", "Lock", "Save", "Begin"}, w.Runtime.Calls()[:4])
	})
}

func TestConflictUnderTheLockWritesNothing(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.Runtime.On("Lock", func() error {
			w.Runtime.OtherRun(w.Runtime.PKI())
			w.Runtime.Conflicts = []plan.Conflict{{Field: ".spec"}}
			return nil
		})
		res, err := w.Run(t)
		runtest.RequireError(t, err, clierr.Conflict, "1 field is owned by other field managers; nothing was written")
		require.Len(t, res.Plan.Conflicts, 1)
		require.Equal(t, []string{"Apply namespaces", "Lock", "Unlock"}, w.Runtime.Calls())
	})
}

func TestChangedObjectIsAppliedAgain(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Runtime.Edit("Deployment/kcp/demo-root", func(o *unstructured.Unstructured) { o.SetLabels(nil) })
		w.MustRun(t)
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply root-shard", "Finish", "Unlock"}, w.Runtime.Calls())
	})
}

func TestUpOnThisMachine(t *testing.T) {
	inWorld(t, runtest.Full, func(t *testing.T, w *world) {
		top := topologytest.LocalOf(w.Topology.Setup)
		w = newWorld(t, top, fakeruntime.New(t, top))
		w.MustRun(t)
		require.Equal(t, "Lock", w.Runtime.Calls()[0], "there are no namespaces")
		require.Len(t, w.Runtime.Kcp.Requests(fakekcp.CreateWorkspace), 3)
	})
}

// A front-proxy that cannot reach a shard does not find its workspaces.
func TestACanaryThatNoFrontProxyFinds(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.Runtime.Kcp.Always(fakekcp.CreateWorkspace, fakekcp.Refuse(http.StatusForbidden, "Forbidden",
			`forbidden: User "" cannot post path "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces": workspace access not permitted`))
		w.Up.Options.Timeout = time.Minute
		_, err := w.Run(t)
		require.ErrorContains(t, err, "root-shard: canary: create workspace")
		require.Contains(t, clierr.Hint(err), "cannot reach the base URL of a shard")
	})
}

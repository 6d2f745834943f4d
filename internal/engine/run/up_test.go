package run_test

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
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestConflictWritesNothing(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.rt.Conflicts = []plan.Conflict{{Field: ".spec.replicas"}, {Field: ".spec.paused"}}
		res, err := w.run(t)
		requireError(t, err, clierr.Conflict, "2 fields are owned by other field managers; nothing was written")
		require.Equal(t, w.rt.Conflicts, res.Plan.Conflicts)
		require.Empty(t, w.rt.Calls())
	})
}

func TestDryRunWritesNothing(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.up.Options.DryRun = true
		res := w.mustRun(t)
		require.False(t, res.Plan.Empty())
		require.Empty(t, w.rt.Calls())
		require.Empty(t, w.rt.Kcp.Requests(""))
		require.Empty(t, w.rt.PKI().CAs)
	})
}

func TestSecondRunOnlyWaits(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		first := w.mustRun(t)
		asked := len(w.rt.Kcp.Requests(""))
		w.rt.States("shard/alpha", waiting("container is starting"), isReady())

		second := w.mustRun(t)
		require.True(t, second.Plan.Empty())
		require.Equal(t, first.PKI.State, second.PKI.State)
		require.Empty(t, w.rt.Calls())
		require.Len(t, w.rt.Kcp.Requests(""), asked, "kcp is not bothered")
		require.Equal(t, []string{"pending", "running container is starting", "done ready 1/1, unchanged"}, w.of("shard/alpha"))
		require.Equal(t, []string{"pending", "done ready 1/1, unchanged"}, w.of("root-shard"))
	})
}

func TestDeletionsComeLast(t *testing.T) {
	inWorld(t, minimal+"spec: {frontProxies: [{name: main}, {name: second}]}\n", func(t *testing.T, w *world) {
		w.mustRun(t)
		objects := func() int {
			all, err := w.rt.Objects(t.Context())
			require.NoError(t, err)
			return len(slices.DeleteFunc(all, func(it plan.Item) bool { return it.Component != "front-proxy/second" }))
		}
		require.NotZero(t, objects())
		before := objects()
		w = newWorld(t, topologytest.Build(t, minimal), w.rt)
		w.rt.Use(w.top)
		w.rt.On("Finish", func() error {
			require.Equal(t, before, objects())
			return nil
		})
		res := w.mustRun(t)
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
			inWorld(t, minimal, func(t *testing.T, w *world) {
				w.rt.On(call, func() error { return boom })
				_, err := w.run(t)
				requireError(t, err, tc.code, tc.want)
				require.Equal(t, "do something", clierr.Hint(err))
				require.ElementsMatch(t, tc.calls, w.rt.Calls())
			})
		})
	}
}

func TestRefusedLockKeepsItsCode(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		held := clierr.New(clierr.Conflict, "wait until that run is done", "locked by another run")
		w.rt.On("Lock", func() error { return held })
		_, err := w.run(t)
		require.ErrorIs(t, err, held)
		require.Equal(t, clierr.Conflict, clierr.Code(err))
	})
}

func TestStuckComponentEndsTheWait(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		stuck := waiting("Pod demo-etcd-root-0: ImagePullBackOff: etcd:v0")
		stuck.Stuck, stuck.Detail = true, []string{"line 1", "line 2"}
		w.rt.States("etcd/root", stuck)
		start := time.Now()
		_, err := w.run(t)
		requireError(t, err, clierr.NotReady, `etcd/root: not ready: Pod demo-etcd-root-0: ImagePullBackOff: etcd:v0
    line 1
    line 2
4 components that need them were skipped`)
		require.InDelta(t, 30*time.Second, time.Since(start), float64(time.Second), "that long it may heal by itself")
		require.Equal(t, "failed not ready: Pod demo-etcd-root-0: ImagePullBackOff: etcd:v0", w.of("etcd/root")[4])
		require.Equal(t, []string{"pending", "skipped etcd/root failed"}, w.of("root-shard"))
		require.Equal(t, "skipped etcd/root failed", w.of("front-proxy/main")[1], "the root shard was skipped, it did not fail")
		require.Contains(t, w.of("etcd/alpha"), "done ready 1/1", "others go on")
		require.NotContains(t, w.rt.Calls(), "Finish")
		require.Contains(t, w.rt.Calls(), "Unlock")
	})
}

// A component that a command repairs names the command.
func TestStuckComponentNamesItsRepair(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		stuck := waiting("Pod demo-etcd-root-1: CrashLoopBackOff: exit code 1")
		stuck.Stuck, stuck.Next = true, "kcpctl etcd replace-member demo-etcd-root-1"
		w.rt.States("etcd/root", stuck)
		_, err := w.run(t)
		require.ErrorContains(t, err, "etcd/root: not ready: Pod demo-etcd-root-1: CrashLoopBackOff")
		require.Equal(t, clierr.NotReady, clierr.Code(err))
		require.Equal(t, "repair it with kcpctl etcd replace-member demo-etcd-root-1, then rerun the command; completed work is kept", clierr.Hint(err))
	})
}

func TestStuckComponentMayHeal(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		stuck, start := waiting("ImagePullBackOff"), time.Now()
		stuck.Stuck = true
		w.rt.States("etcd/root", stuck)
		w.rt.On("State etcd/root", func() error {
			switch passed := time.Since(start); {
			case passed > 2*time.Minute:
				w.rt.States("etcd/root", isReady())
			case passed > 20*time.Second && passed < 25*time.Second, passed > 45*time.Second:
				w.rt.States("etcd/root", waiting("container is starting"))
			default:
				w.rt.States("etcd/root", stuck)
			}
			return nil
		})
		w.mustRun(t)
		require.Greater(t, time.Since(start), 2*time.Minute)
	})
}

func TestAskingForAStateMayFail(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		asked := 0
		w.rt.On("State etcd/root", func() error {
			if asked++; asked < 3 {
				return errors.New("connection lost")
			}
			return nil
		})
		w.mustRun(t)
		require.Contains(t, w.of("etcd/root"), "running connection lost")
	})
}

func TestTimeout(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		w.up.Options.Timeout = 5 * time.Minute
		w.rt.States("root-shard", waiting("0/1 ready"))
		start := time.Now()
		_, err := w.run(t)
		requireError(t, err, clierr.NotReady,
			"root-shard: not ready (timed out after 5m0s): 0/1 ready\n3 components that need them were skipped")
		require.Equal(t, 5*time.Minute, time.Since(start))
		require.NotContains(t, w.rt.Calls(), "Finish")
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
		"while a component starts": {func(w *world) { w.rt.States("root-shard", waiting("0/1 ready")) }, "0/1 ready", []string{"root-shard"}, []string{"front-proxy/main", "kubeconfig/admin", "shard/alpha"}},
		"while kcp starts":         {func(w *world) { w.rt.Kcp.Always("root-shard readyz", fakekcp.NotReady("etcd")) }, "/readyz: etcd not ready", []string{"root-shard"}, []string{"front-proxy/main", "kubeconfig/admin", "shard/alpha"}},
		"in the canary":            {func(w *world) { w.rt.Kcp.Always(fakekcp.GetWorkspace, fakekcp.Workspace("", "", "")) }, "alpha, root: not scheduled", []string{"canary"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sharded, func(t *testing.T, w *world) {
				tc.script(w)
				ctx, cancel := context.WithCancelCause(t.Context())
				w.up.Options.Timeout = time.Hour
				w.onEach = func(e run.Event) {
					if e.Message == tc.at {
						cancel(context.Canceled)
					}
				}
				_, err := w.up.Run(ctx)
				requireError(t, err, clierr.Interrupted, "interrupted; completed work is kept")
				require.NotContains(t, w.rt.Calls(), "Finish")
				require.Contains(t, w.rt.Calls(), "Unlock")
				for _, e := range w.events {
					require.NotContains(t, []run.Status{run.Failed, run.Skipped}, e.Status, "%s: nothing has failed", e.Name)
				}
				require.Subset(t, w.in(run.Interrupted), tc.interrupted)
				ended := slices.DeleteFunc(slices.Concat(w.in(run.Interrupted), w.in(run.NotStarted)), func(name string) bool {
					return name == "etcd/alpha" // it needs no other component: it is done by then, or not
				})
				require.ElementsMatch(t, slices.Concat(tc.interrupted, tc.others), ended)

				w.onEach = func(run.Event) {}
				w.rt.Kcp.Always("root-shard readyz", fakekcp.Answer{Code: 200, Body: "ok"})
				w.rt.Kcp.Always(fakekcp.GetWorkspace, fakekcp.Workspace("Ready", "", ""))
				w.rt.States("root-shard", isReady())
				w.mustRun(t)
				require.Contains(t, w.rt.Calls(), "Finish", "the same command goes on")
				require.Contains(t, w.of("canary")[len(w.of("canary"))-1], "done")
			})
		})
	}
}

func TestAnotherRunWroteBeforeTheLock(t *testing.T) {
	inWorld(t, sharded, func(t *testing.T, w *world) {
		theirs := pkitest.Issue(t, w.top, time.Now())
		w.rt.On("Lock", func() error {
			w.rt.OtherRun(theirs)
			return nil
		})
		res := w.mustRun(t)
		require.Empty(t, res.PKI.CAs, "no authority is made again")
		require.Equal(t, theirs.CAs, w.rt.PKI().CAs)
		require.Equal(t, []string{"Apply namespaces", "Lock", "Save", "Begin"}, w.rt.Calls()[:4])
	})
}

func TestConflictUnderTheLockWritesNothing(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		w.rt.On("Lock", func() error {
			w.rt.OtherRun(w.rt.PKI())
			w.rt.Conflicts = []plan.Conflict{{Field: ".spec"}}
			return nil
		})
		res, err := w.run(t)
		requireError(t, err, clierr.Conflict, "1 field is owned by other field managers; nothing was written")
		require.Len(t, res.Plan.Conflicts, 1)
		require.Equal(t, []string{"Apply namespaces", "Lock", "Unlock"}, w.rt.Calls())
	})
}

func TestChangedObjectIsAppliedAgain(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.rt.Edit("Deployment/kcp/demo-root", func(o *unstructured.Unstructured) { o.SetLabels(nil) })
		w.mustRun(t)
		require.Equal(t, []string{"Lock", "Save", "Begin", "Apply root-shard", "Finish", "Unlock"}, w.rt.Calls())
	})
}

func TestUpOnThisMachine(t *testing.T) {
	inWorld(t, full, func(t *testing.T, w *world) {
		top := topologytest.LocalOf(w.top.Setup)
		w = newWorld(t, top, fakeruntime.New(t, top))
		w.mustRun(t)
		require.Equal(t, "Lock", w.rt.Calls()[0], "there are no namespaces")
		require.Len(t, w.rt.Kcp.Requests(fakekcp.CreateWorkspace), 3)
	})
}

// A front-proxy that cannot reach a shard does not find its workspaces.
func TestACanaryThatNoFrontProxyFinds(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		w.rt.Kcp.Always(fakekcp.CreateWorkspace, fakekcp.Refuse(http.StatusForbidden, "Forbidden",
			`forbidden: User "" cannot post path "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces": workspace access not permitted`))
		w.up.Options.Timeout = time.Minute
		_, err := w.run(t)
		require.ErrorContains(t, err, "root-shard: canary: create workspace")
		require.Contains(t, clierr.Hint(err), "cannot reach the base URL of a shard")
	})
}

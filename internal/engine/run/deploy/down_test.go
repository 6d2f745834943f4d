package deploy_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/runtest"
)

// down runs Down on what is up.
func (w *world) down(t *testing.T, purge bool) error {
	t.Helper()
	w.Runtime.Forget()
	w.Events = nil
	return (&deploy.Down{Runtime: w.Runtime, Topology: w.Topology, Purge: purge, Observe: w.Observe(t), Now: time.Now}).Run(t.Context())
}

func TestDownRemovesDependantsFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		purge bool
		last  []string
	}{
		"keeps data": {false, []string{"Finish", "Unlock"}},
		"purge":      {true, []string{"Purge", "Unlock"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Full, func(t *testing.T, w *world) {
				w.MustRun(t)
				w.Runtime.Add(plan.Item{Ref: plan.Ref{Name: "x"}, Component: "gadget/x"})
				require.NoError(t, w.down(t, tc.purge))
				calls := w.Runtime.Calls()
				slices.Sort(calls[3:8]) // kcp servers go down together
				require.Equal(t, append([]string{
					"Lock", "Begin", "Delete kubeconfig/admin kubeconfig/ops",
					"Delete cache-server", "Delete front-proxy/main", "Delete root-shard", "Delete shard/alpha shard/beta", "Delete virtual-workspaces/vw",
					"Delete etcd/alpha etcd/cache etcd/root", "Delete base/default", "Delete gadget/x",
				}, tc.last...), calls)
				require.Equal(t, []string{"running removing 1 object", "done 1 object removed"}, w.Of("others"))
				require.Equal(t, []string{"running removing 2 objects", "done 2 objects removed"}, w.Of("kubeconfig"))
				require.Equal(t, tc.purge, len(w.Runtime.PKI().CAs) == 0)
			})
		})
	}
}

func TestDownOfNothing(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		require.NoError(t, w.down(t, false))
		require.Empty(t, w.Runtime.Calls())
		require.NoError(t, w.down(t, true))
		require.Equal(t, []string{"Purge"}, w.Runtime.Calls(), "what earlier runs kept")
	})
}

func TestDownStopsWhereItFails(t *testing.T) {
	boom := errors.New("boom\nmore")
	for call, tc := range map[string]struct{ step, later string }{
		"Delete front-proxy/main": {"front-proxy", "Delete etcd/root"},
		"Purge":                   {"purge", "Finish"},
	} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
				w.MustRun(t)
				w.Runtime.On(call, func() error { return boom })
				require.ErrorIs(t, w.down(t, true), boom)
				require.NotContains(t, w.Runtime.Calls(), tc.later)
				require.Equal(t, "Unlock", w.Runtime.Calls()[len(w.Runtime.Calls())-1])
				require.Equal(t, "failed boom", w.Of(tc.step)[1])

				w.Runtime.On(call, func() error { return nil })
				require.NoError(t, w.down(t, true), "the same command goes on")
			})
		})
	}
}

func TestDownIsRefusedTheLock(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.MustRun(t)
		w.Runtime.On("Lock", func() error { return clierr.New(clierr.Conflict, "", "locked") })
		require.Equal(t, clierr.Conflict, clierr.Code(w.down(t, true)))
		require.Empty(t, w.Runtime.Calls())
	})
}

// While the question is open, another run adds a shard: it is not removed, and nothing else is.
func TestDownRemovesOnlyWhatWasShown(t *testing.T) {
	inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
		w.MustRun(t)
		shown, err := w.Runtime.Objects(t.Context())
		require.NoError(t, err)
		w.Runtime.Add(plan.Item{Ref: plan.Ref{Name: "demo-shard-new"}, Component: "shard/new"})
		w.Runtime.Forget()
		err = (&deploy.Down{Runtime: w.Runtime, Purge: true, Shown: shown, Observe: w.Observe(t), Now: time.Now}).Run(t.Context())
		runtest.RequireError(t, err, clierr.Conflict, "another run has added /demo-shard-new since you were asked; nothing was removed")
		require.Equal(t, []string{"Lock", "Unlock"}, w.Runtime.Calls())
	})
}

// tenants are what workspaces run.
type tenants []string

func (f tenants) Left(context.Context) []string { return f }

// As long as a syncer runs, what a workspace loses is deleted in the physical clusters. So all of them stop before
// anything else is deleted.
func TestDownStopsSyncersFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		purge bool
		last  string
	}{
		"keeps data": {false, ""},
		"purge":      {true, "done nothing is left but 2 namespaces in c1; namespace x in c2"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, runtest.Minimal, func(t *testing.T, w *world) {
				w.MustRun(t)
				for _, it := range []plan.Item{
					{Component: "workloads/controller", Ref: plan.Ref{Name: "controller"}},
					{Component: "cluster/c1", Ref: plan.Ref{Workspace: "cluster/c1", Name: "account"}},
					{Component: "cluster/c2", Ref: plan.Ref{Name: "syncer", Cluster: "c2"}},
					{Component: "agent/widgets", Ref: plan.Ref{Name: "agent"}},
				} {
					w.Runtime.Add(it)
				}
				w.Runtime.Forget()
				f := tenants{"2 namespaces in c1", "namespace x in c2"}
				require.NoError(t, (&deploy.Down{
					Runtime: w.Runtime, Topology: w.Topology, Purge: tc.purge, Tenants: f,
					Observe: w.Observe(t), Now: time.Now,
				}).Run(t.Context()))
				stopped := []string{"Lock", "Begin", "Delete workloads/controller", "Delete cluster/c2", "Delete cluster/c1"}
				require.Equal(t, stopped, w.Runtime.Calls()[:len(stopped)], w.Runtime.Calls())
				require.Contains(t, w.Runtime.Calls()[len(stopped):], "Delete agent/widgets")
				if purged := w.Of("purge"); tc.purge {
					require.Equal(t, tc.last, purged[len(purged)-1])
				}
			})
		})
	}
}

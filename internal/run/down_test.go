package run_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
)

// down runs Down on what is up.
func (w *world) down(t *testing.T, purge bool, more ...plan.Item) error {
	t.Helper()
	d := &run.Down{Runtime: w.rt, Purge: purge, Observe: w.observe(t), Now: time.Now}
	objects, err := d.Objects(t.Context())
	require.NoError(t, err)
	w.rt.Forget()
	w.events = nil
	return d.Run(t.Context(), append(objects, more...))
}

func TestDownRemovesDependantsFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		purge bool
		last  []string
	}{
		"keeps data": {false, []string{"Unlock"}},
		"purge":      {true, []string{"Purge", "Unlock"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, full, func(t *testing.T, w *world) {
				w.mustRun(t)
				require.NoError(t, w.down(t, tc.purge, plan.Item{Component: "gadget/x"}))
				require.Equal(t, append([]string{
					"Lock", "Delete kubeconfig/admin kubeconfig/ops", "Delete virtual-workspaces/vw", "Delete front-proxy/main",
					"Delete shard/alpha shard/beta", "Delete root-shard", "Delete cache-server", "Delete etcd/alpha etcd/cache etcd/root",
					"Delete base/default", "Delete gadget/x",
				}, tc.last...), w.rt.Calls())
				require.Equal(t, []string{"running removing 1 object", "done 1 object removed"}, w.of("others"))
				require.Equal(t, []string{"running removing 2 objects", "done 2 objects removed"}, w.of("kubeconfig"))
				require.Equal(t, tc.purge, len(w.rt.PKI().CAs) == 0)
			})
		})
	}
}

func TestDownOfNothing(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		require.NoError(t, w.down(t, false))
		require.Empty(t, w.rt.Calls())
		require.NoError(t, w.down(t, true))
		require.Equal(t, []string{"Purge"}, w.rt.Calls(), "what earlier runs kept")
	})
}

func TestDownStopsWhereItFails(t *testing.T) {
	boom := errors.New("boom\nmore")
	for call, tc := range map[string]struct{ step, last string }{
		"Delete front-proxy/main": {"front-proxy", "Delete kubeconfig/admin"},
		"Purge":                   {"purge", "Delete base/default"},
	} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, minimal, func(t *testing.T, w *world) {
				w.mustRun(t)
				w.rt.On(call, func() error { return boom })
				require.ErrorIs(t, w.down(t, true), boom)
				calls := w.rt.Calls()
				require.Equal(t, []string{tc.last, "Unlock"}, calls[len(calls)-2:])
				require.Equal(t, "failed boom", w.of(tc.step)[1])

				w.rt.On(call, func() error { return nil })
				require.NoError(t, w.down(t, true), "the same command goes on")
			})
		})
	}
}

func TestDownIsRefusedTheLock(t *testing.T) {
	inWorld(t, minimal, func(t *testing.T, w *world) {
		w.mustRun(t)
		w.rt.On("Lock", func() error { return clierr.New(clierr.Conflict, "", "locked") })
		require.Equal(t, clierr.Conflict, clierr.Code(w.down(t, true)))
		require.Empty(t, w.rt.Calls())
	})
}

package kube

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
)

// locked returns two runs of a setup whose namespace exists.
func (f *fixture) locked() (one, two *Runtime) {
	f.t.Helper()
	one, two = f.runtime(f.topology), f.runtime(f.topology)
	f.up(one, run.PlanOptions{})
	return one, two
}

func TestALiveRunKeepsOthersOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	one, two := f.locked()
	_, unlock, err := one.Lock(t.Context())
	require.NoError(t, err)
	_, _, err = two.Lock(t.Context())
	require.Equal(t, clierr.Conflict, clierr.Code(err))
	require.ErrorContains(t, err, "of tester on test, since ")

	unlock()
	unlock() // again: nothing happens
	_, unlock, err = two.Lock(t.Context())
	require.NoError(t, err)
	unlock()
}

func TestTheLockOfADeadProcessIsTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	one, two := f.locked()
	gone := exec.Command("true")
	require.NoError(t, gone.Run())
	one.locker.Holder.PID = gone.Process.Pid
	held, _, err := one.Lock(t.Context())
	require.NoError(t, err)
	_, unlock, err := two.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()

	// The first notices that it is not the holder any more, and writes nothing more.
	select {
	case <-held.Done():
	case <-time.After(10 * lease.RenewInterval):
		t.Fatal("the loss of the lock was not noticed")
	}
	err = context.Cause(held)
	require.ErrorIs(t, err, lease.ErrLost)
	require.Error(t, one.Apply(held, []plan.Item{{}}, run.PlanOptions{}))
	require.Equal(t, clierr.Conflict, clierr.Code(err))
}

func TestTheLockOfASilentMachineRunsOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	one, two := f.locked()
	one.locker.Holder.Machine = "elsewhere"
	_, _, err := one.Lock(t.Context())
	require.NoError(t, err)
	one.held.Load().StopRenewing()
	l := f.leases(one)[0]
	require.NoError(t, unstructured.SetNestedField(l.Object, int64(1), "spec", "leaseDurationSeconds"))
	_, err = one.clusters.home.Resource(kind.Leases).Update(t.Context(), &l, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, unlock, err := two.Lock(t.Context())
	require.NoError(t, err)
	unlock()
}

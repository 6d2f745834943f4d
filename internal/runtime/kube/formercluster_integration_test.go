package kube

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

// A run that is limited to components, or a remove-shard, forgets no cluster on which something is left.
func TestALimitedRunForgetsNoFormerCluster(t *testing.T) {
	t.Parallel()
	f, r := inTwoPlaces(t)
	left := f.runtime(without(f.topology))
	limited := func(p *plan.Plan) *plan.Plan {
		out := *p
		out.Items = nil
		for _, it := range p.Items {
			if it.Action != plan.Delete {
				out.Items = append(out.Items, it)
			}
		}
		return &out
	}
	p, err := left.Plan(t.Context(), f.objects(left), run.PlanOptions{})
	require.NoError(t, err)
	require.NotZero(t, p.Count(plan.Delete))
	rec := f.record(left, f.pki(left))
	require.NoError(t, left.Begin(t.Context(), limited(p), rec))
	require.NoError(t, left.Finish(t.Context(), limited(p), rec, plan.Applied{Setup: []byte("limited")}))

	us, err := r.installation.inventories.Read(t.Context(), r.clusters.current[1])
	require.NoError(t, err)
	require.True(t, us.Exists())
	home, err := r.installation.inventories.Read(t.Context(), r.clusters.home)
	require.NoError(t, err)
	require.Len(t, home.Clusters, 2, "the home cluster knows where something is left")
	there, err := members(t.Context(), r.clusters.current[1], r.topology, always)
	require.NoError(t, err)
	require.NotEmpty(t, there)

	p = f.up(f.runtime(without(f.topology)), run.PlanOptions{})
	require.NotZero(t, p.Count(plan.Delete), "the next run that is not limited finds it")
	there, err = members(t.Context(), r.clusters.current[1], r.topology, always)
	require.NoError(t, err)
	require.Empty(t, there)
}

// A Secret of an earlier installation that is restored in a place says that the place belongs to that one. The place is
// left alone, and is not forgotten. A run that forgets the place ends the message about it, and not the protection.
func TestAFormerClusterOfAnotherOwnerIsNotForgotten(t *testing.T) {
	t.Parallel()
	f, r := inTwoPlaces(t)
	us := r.clusters.current[1]
	own := func(installation string) {
		require.NoError(t, r.installation.inventories.Update(t.Context(), us, func(inv *inventory.Inventory) {
			inv.Owner.Installation = installation
		}))
	}
	there, err := r.installation.inventories.Read(t.Context(), us)
	require.NoError(t, err)
	own("demo-earlier")
	p := f.up(f.runtime(without(f.topology)), run.PlanOptions{})
	require.Zero(t, p.Count(plan.Delete))
	home, err := r.installation.inventories.Read(t.Context(), r.clusters.home)
	require.NoError(t, err)
	require.Len(t, home.Clusters, 2)

	skips := func(forget ...string) bool {
		left := f.runtime(without(f.topology))
		left.clusters.previous.forget = forget
		require.Zero(t, f.up(left, run.PlanOptions{}).Count(plan.Delete))
		return slices.ContainsFunc(left.clusters.previous.notified, func(m string) bool {
			return strings.HasPrefix(m, "skipping cluster us (") && strings.HasSuffix(m, ": kcpctl up --forget-cluster us")
		})
	}
	require.True(t, skips())
	require.False(t, skips("us"))
	require.False(t, skips())

	own(there.Owner.Installation)
	p = f.up(f.runtime(without(f.topology)), run.PlanOptions{})
	require.NotZero(t, p.Count(plan.Delete))
	left, err := members(t.Context(), us, r.topology, always)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A cluster that is lost for good is remembered until a run forgets it. One that answers is not lost.
func TestALostClusterIsForgotten(t *testing.T) {
	t.Parallel()
	f, r := inTwoPlaces(t)
	left := func(lost bool, forget ...string) *Runtime {
		out := f.runtime(without(f.topology))
		out.clusters.previous.forget = forget
		if lost {
			out.clusters.previous.newClient = func(c topology.Cluster) (*cluster.Client, error) {
				return cluster.Unconfigured(c, cluster.Options{Now: time.Now}, errors.New("connection refused"))
			}
		}
		return out
	}
	clusters := func() []inventory.Placement {
		home, err := r.installation.inventories.Read(t.Context(), r.clusters.home)
		require.NoError(t, err)
		return home.Clusters
	}

	p := f.up(left(true), run.PlanOptions{})
	require.Zero(t, p.Count(plan.Delete))
	require.Len(t, clusters(), 2, "it may come back")
	p, err := f.planWith(left(true), run.PlanOptions{})
	require.NoError(t, err)
	require.True(t, p.Empty(), "nothing has changed")

	_, err = f.planWith(left(false, "us"), run.PlanOptions{})
	requireRefused(t, err, "cluster us (", "omit --forget-cluster us: kcpctl up deletes the objects of the setup there")

	p, err = f.planWith(left(true, "us"), run.PlanOptions{})
	require.NoError(t, err)
	require.False(t, p.Empty(), "the inventory changes")
	f.up(left(true, "us"), run.PlanOptions{})
	require.Len(t, clusters(), 2, "who reaches it removes what is left there")
	require.NotEmpty(t, clusters()[1].Forgotten)
	p, err = f.planWith(left(true), run.PlanOptions{})
	require.NoError(t, err)
	require.True(t, p.Empty())
}

// Which clusters the setup has left is found out again under the lock: another run may have left one meanwhile.
func TestFormerClustersAreFoundAgainUnderTheLock(t *testing.T) {
	t.Parallel()
	f, r := inTwoPlaces(t)
	only := f.runtime(without(f.topology))
	inv, err := r.installation.inventories.Read(t.Context(), r.clusters.home)
	require.NoError(t, err)
	all := inv.Clusters
	require.Len(t, all, 2)
	set := func(p []inventory.Placement) {
		require.NoError(t, r.installation.inventories.Update(t.Context(), r.clusters.home, func(inv *inventory.Inventory) { inv.Clusters = p }))
	}
	set(all[:1])
	p, err := only.Plan(t.Context(), f.objects(only), run.PlanOptions{})
	require.NoError(t, err)
	set(all) // what another run does: it adds the cluster, and leaves it again, with data on it
	held, unlock, err := only.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	rec := f.record(only, f.pki(only))
	require.NoError(t, only.Begin(held, p, rec))
	require.NoError(t, only.Finish(held, p, rec, plan.Applied{}))
	inv, err = r.installation.inventories.Read(t.Context(), r.clusters.home)
	require.NoError(t, err)
	require.Len(t, inv.Clusters, 2, "it is not forgotten")
}

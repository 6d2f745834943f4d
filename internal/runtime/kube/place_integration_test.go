package kube

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
	"github.com/kcpctl/kcpctl/test/apiserver"
)

// twoPlaces has a shard in a second namespace.
const twoPlaces = `spec:
  clusters: [{name: eu, kubeconfig: %[1]q, namespace: %[2]s}, {name: us, kubeconfig: %[1]q, namespace: %[2]s-us}]
  external: {hostname: kcp.example.com}
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: beta, cluster: us, url: "https://beta.example.com:6443"}]
`

// without is a setup without its second cluster.
func without(t *topology.Topology) *topology.Topology {
	s := *t.Setup
	s.Spec.Shards, s.Spec.Clusters = nil, s.Spec.Clusters[:1]
	return topology.Build(&s)
}

// inTwoPlaces brings a setup up in two namespaces, which are not its own.
func inTwoPlaces(t *testing.T) (*fixture, *Runtime) {
	t.Helper()
	f := newRecorded(t, twoPlaces)
	r := f.runtime(f.topology)
	f.createNamespace(r)
	us := *f
	us.namespace += "-us"
	us.createNamespace(r)
	f.up(r, run.PlanOptions{})
	return f, r
}

// plan makes a plan as another run would, with the PKI of the cluster.
func (f *fixture) plan(top *topology.Topology, o run.PlanOptions) (*plan.Plan, error) {
	return f.planWith(f.runtime(top), o)
}

// planWith makes a plan with a runtime.
func (f *fixture) planWith(r *Runtime, o run.PlanOptions) (*plan.Plan, error) {
	if _, err := r.Record(f.t.Context()); err != nil {
		return nil, err // no run goes further
	}
	return r.Plan(f.t.Context(), f.objects(r), o)
}

// requireRefused wants an error with its hint.
func requireRefused(t *testing.T, err error, says, hint string) {
	t.Helper()
	require.ErrorContains(t, err, says)
	require.Contains(t, hints(err), hint)
}

// accepting is a runtime with --allow other-cluster.
func accepting(r *Runtime) *Runtime {
	r.installation.allowOtherCluster = true
	return r
}

// The same setup in another namespace is a second kcp: it has to be wanted.
func TestTheSameSetupInAnotherNamespaceIsRefused(t *testing.T) {
	t.Parallel()
	f := newRecorded(t, sharded)
	f.up(f.runtime(f.topology), run.PlanOptions{})
	second := *f
	second.namespace += "-second"
	top := second.parse(f.named(sharded), apiserver.Admin)

	_, err := second.plan(top, run.PlanOptions{})
	requireRefused(t, err, "was applied to context admin, namespace "+f.namespace+", from this machine", "-n), or install a second kcp of this name with --allow other-cluster")
	remembers := second.stateDir
	second.stateDir = t.TempDir()
	_, err = second.plan(top, run.PlanOptions{})
	requireRefused(t, err, "is installed in namespace "+f.namespace+" of this cluster, and not in context admin, namespace "+second.namespace, "--allow other-cluster")
	_, err = second.runtime(top).Objects(t.Context())
	require.Error(t, err, "down is refused too")

	second.stateDir = remembers
	p := second.up(accepting(second.runtime(top)), run.PlanOptions{})
	require.NotZero(t, p.Count(plan.Create))
	for _, it := range []struct {
		f   *fixture
		top *topology.Topology
	}{{f, f.topology}, {&second, top}} {
		p, err := it.f.plan(it.top, run.PlanOptions{})
		require.NoError(t, err, "both are remembered")
		require.True(t, p.Empty())
	}
	all, err := f.runtime(f.topology).installation.known.Load()
	require.NoError(t, err)
	require.Len(t, all, 2)
}

// Another context is another place, if it leads to another cluster.
func TestTheSameSetupInAnotherContextIsRefused(t *testing.T) {
	t.Parallel()
	f := newRecorded(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	top := f.parse(f.named(sharded), apiserver.Admin)
	top.Clusters[0].Context, top.Home.Context = apiserver.Admin, apiserver.Admin // by its name, so that the memory has another
	same := f.runtime(top)
	p, err := same.Plan(t.Context(), f.objects(same), run.PlanOptions{})
	require.NoError(t, err)
	require.True(t, p.Empty(), "the same cluster under another name is the same")

	other := f.runtime(top)
	require.NoError(t, other.clusters.home.Connect(t.Context()))
	other.clusters.home.UID = "another"
	objects := f.objects(other)
	name := r.topology.Object(topology.InventoryPart)
	require.NoError(t, r.clusters.home.Resource(kind.Secret.GVR()).Delete(t.Context(), name, metav1.DeleteOptions{})) // another cluster has none
	_, err = other.Plan(t.Context(), objects, run.PlanOptions{})
	requireRefused(t, err, "was applied to context admin, namespace "+f.namespace+", from this machine", "--allow other-cluster")
	_, err = accepting(other).Plan(t.Context(), objects, run.PlanOptions{})
	require.NoError(t, err)
}

// Two clusters of the setup that are the same place would each delete what the other has.
func TestTwoClustersAreOnePlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t, strings.NewReplacer("{name: us,", "{name: us, context: admin,", "%[2]s-us", "%[2]s").Replace(twoPlaces))
	for name, uid := range map[string]types.UID{"by UID": "", "by address": "-"} {
		t.Run(name, func(t *testing.T) {
			r := f.runtime(f.topology)
			for _, s := range r.clusters.current {
				require.NoError(t, s.Connect(t.Context()))
				if uid == "-" {
					s.UID = "" // the user may not see it
				}
			}
			_, err := r.Plan(t.Context(), f.objects(r), run.PlanOptions{})
			require.Equal(t, clierr.BadInput, clierr.Code(err))
			require.ErrorContains(t, err, "clusters eu and us of the setup are the same place")
		})
	}
}

// A cluster that is only called otherwise is the same: nothing is deleted, and no data has moved.
func TestARenamedClusterIsTheSame(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]string{"by UID": apiserver.Admin, "by a user who may not see UIDs": "tenant"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, r := inTwoPlaces(t)
			us := *f
			us.namespace += "-us"
			for i, g := range []*fixture{f, &us} {
				g.grant(at(r.clusters.current[i]), "RoleBinding", "tenant", "system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view")
			}
			renamed := strings.NewReplacer("{name: us,", "{name: usa,", "cluster: us,", "cluster: usa,").Replace(f.named(twoPlaces))
			next := f.runtime(f.parse(renamed, user))
			if user == apiserver.Admin {
				rec, err := r.Record(t.Context())
				require.NoError(t, err)
				rec.Data["shard/beta"] = record.Data{Cluster: "us", Namespace: us.namespace}
				require.NoError(t, r.installation.inventories.Update(t.Context(), r.clusters.home, func(inv *inventory.Inventory) { r.installation.setOwner(r.clusters.home, inv, rec) }))
				rec, err = next.Record(t.Context())
				require.NoError(t, err)
				require.Equal(t, "usa", rec.Data["shard/beta"].Cluster, "the first look recognises it")
			}
			var p *plan.Plan
			require.EventuallyWithT(t, func(c *assert.CollectT) { // permissions take a moment
				var err error
				p, err = next.Plan(t.Context(), f.objectsFrom(next, r), run.PlanOptions{})
				assert.NoError(c, err)
			}, time.Minute, 50*time.Millisecond)
			require.Zero(t, p.Count(plan.Delete), changes(p))
			require.Empty(t, next.clusters.previous.found)
			require.Empty(t, next.clusters.previous.notified, "the setup still has it")
		})
	}
}

// objectsFrom renders a topology with the PKI as an administrator sees it.
func (f *fixture) objectsFrom(r, admin *Runtime) []render.Object {
	f.t.Helper()
	state := f.pki(admin)
	for key, pair := range state.Leaves {
		key.Cluster = strings.Replace(key.Cluster, "us", "usa", 1)
		state.Leaves[key] = pair
	}
	objects, err := render.Objects(r.topology, state)
	require.NoError(f.t, err)
	return objects
}

// The root shard stays where it is.
func TestTheRootShardCannotMove(t *testing.T) {
	t.Parallel()
	const byName = "has its root shard on cluster eu (context admin, namespace "
	t.Run("to a place of the setup", func(t *testing.T) {
		t.Parallel()
		f, _ := inTwoPlaces(t)
		top := f.parse(strings.Replace(f.named(twoPlaces), "rootShard: {cluster: eu", "rootShard: {cluster: us", 1), apiserver.Admin)
		for _, r := range []*Runtime{f.runtime(top), accepting(f.runtime(top))} {
			_, err := r.Record(t.Context())
			requireRefused(t, err, byName+f.namespace, "place spec.rootShard on cluster eu, namespace "+f.namespace+", again")
		}
	})
	t.Run("to a place of the setup, and the old one is not in it any more", func(t *testing.T) {
		t.Parallel()
		f, r := inTwoPlaces(t)
		f.stateDir = t.TempDir() // nor does this machine remember it
		text := strings.NewReplacer("%[2]s-us", r.clusters.current[1].Namespace).Replace(f.named(sharded))
		kubeconfig, err := server.Kubeconfig(apiserver.Admin)
		require.NoError(t, err)
		text = strings.NewReplacer("%q", `"`+kubeconfig+`"`, "%s", r.clusters.current[1].Namespace).Replace(text)
		_, err = f.plan(topologytest.Build(t, text), run.PlanOptions{})
		requireRefused(t, err, byName+f.namespace, "moving the root shard is not supported")
	})
	t.Run("to a new cluster, while the old one is in the setup", func(t *testing.T) {
		t.Parallel()
		f, _ := inTwoPlaces(t)
		text := strings.NewReplacer("rootShard: {cluster: eu", "rootShard: {cluster: ap",
			"clusters: [", "clusters: [{name: ap, kubeconfig: %[1]q, namespace: %[2]s-ap}, ").Replace(f.named(twoPlaces))
		_, err := f.plan(f.parse(text, apiserver.Admin), run.PlanOptions{})
		requireRefused(t, err, byName+f.namespace, "place spec.rootShard on cluster eu")
	})
	t.Run("to a new cluster, and this machine remembers the old one", func(t *testing.T) {
		t.Parallel()
		f, _ := inTwoPlaces(t)
		g := *f
		g.namespace += "-ap"
		_, err := g.plan(g.parse(f.named(sharded), apiserver.Admin), run.PlanOptions{})
		requireRefused(t, err, "was applied to context admin, namespace "+f.namespace, "choose the right context and namespace")
	})
}

// own changes the owner in the inventory of a place.
func own(t *testing.T, r *Runtime, cl *cluster.Client, change func(*inventory.Owner)) {
	t.Helper()
	require.NoError(t, r.installation.inventories.Update(t.Context(), cl, func(inv *inventory.Inventory) {
		require.NotEmpty(t, inv.Owner.Installation)
		change(&inv.Owner)
	}))
}

func TestAPlaceOfAnotherInstallation(t *testing.T) {
	t.Parallel()
	f, r := inTwoPlaces(t)
	own(t, r, r.clusters.current[1], func(o *inventory.Owner) { o.Installation, o.Home.UID = "other-1", "elsewhere" })
	_, err := accepting(f.runtime(f.topology)).Objects(t.Context())
	requireRefused(t, err, "holds components of another installation of kcp", "choose another namespace for the setup on that cluster")

	// Once the setup has left it, it is not the setup's business: neither an error, nor something to delete.
	left := f.runtime(without(f.topology))
	p := f.up(left, run.PlanOptions{})
	require.Zero(t, p.Count(plan.Delete))
	there, err := members(t.Context(), r.clusters.current[1], r.topology, always)
	require.NoError(t, err)
	require.NotEmpty(t, there)
	inv, err := r.installation.inventories.Read(t.Context(), r.clusters.current[1])
	require.NoError(t, err)
	require.Equal(t, "other-1", inv.Owner.Installation)
}

// A run that was interrupted between the inventories of two places, or an inventory that was deleted manually, does not
// block a run.
func TestTheHomeInventoryIsMadeAgain(t *testing.T) {
	t.Parallel()
	f, r := inTwoPlaces(t)
	before, err := r.Record(t.Context())
	require.NoError(t, err)
	name := r.topology.Object(topology.InventoryPart)
	require.NoError(t, r.clusters.home.Resource(kind.Secret.GVR()).Delete(t.Context(), name, metav1.DeleteOptions{}))
	p := f.up(f.runtime(f.topology), run.PlanOptions{})
	require.Empty(t, changes(p))
	after, err := r.Record(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.Installation, after.Installation)
	require.True(t, f.up(f.runtime(f.topology), run.PlanOptions{}).Empty())
}

// A run that replaces the PKI, and with it the installation's ID, may be interrupted between the inventories of two
// places.
func TestAReplacedInstallationIsStillOne(t *testing.T) {
	t.Parallel()
	f, r := inTwoPlaces(t)
	inv, err := r.installation.inventories.Read(t.Context(), r.clusters.home)
	require.NoError(t, err)
	next := inv.Record.Purge()
	next.Installation = "next-1"
	require.NoError(t, r.installation.inventories.Update(t.Context(), r.clusters.home, func(inv *inventory.Inventory) { r.installation.setOwner(r.clusters.home, inv, next) }))
	_, err = f.plan(f.topology, run.PlanOptions{})
	require.NoError(t, err)
}

// A run that has lost the lock writes to no store.
func TestNothingIsSavedAfterTheLockIsLost(t *testing.T) {
	t.Parallel()
	f := newRecorded(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	held, unlock, err := r.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	state := f.pki(r)
	require.NoError(t, r.clusters.home.Resource(kind.Leases).Delete(t.Context(), r.locker.Name, metav1.DeleteOptions{}))
	<-held.Done() // the next renewal finds out
	before := f.versions(r)
	state.Installation.EtcdPrefix = "/changed"
	requireNoWrites(t, r, held)
	require.ErrorIs(t, r.Store().Save(held, state), lease.ErrLost)
	require.ErrorIs(t, context.Cause(held), lease.ErrLost)
	require.Equal(t, before, f.versions(r))
}

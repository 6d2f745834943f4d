package kube

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
)

const slow = "example.com/slow"

// stuckClaim makes a volume of the setup that takes its time to go.
func (f *fixture) stuckClaim(r *Runtime) {
	f.t.Helper()
	f.as("statefulset", r, kind.PersistentVolumeClaim, "data", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{topology.LabelSetup: r.topology.Name}, "finalizers": []any{slow}},
		"spec": map[string]any{
			"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		},
	})
}

// unstick lets it go.
func (f *fixture) unstick(r *Runtime) {
	f.t.Helper()
	claim := f.live(r, kind.PersistentVolumeClaim, "data")
	claim.SetFinalizers(nil)
	_, err := r.clusters.home.Resource(kind.PersistentVolumeClaim.GVR()).Update(f.t.Context(), claim, metav1.UpdateOptions{})
	require.NoError(f.t, err)
}

func (f *fixture) leases(r *Runtime) []unstructured.Unstructured {
	f.t.Helper()
	l, err := r.clusters.home.Resource(kind.Leases).List(f.t.Context(), metav1.ListOptions{})
	require.NoError(f.t, err)
	return l.Items
}

// Another run does not get the lock while a purge waits for a volume, and begins with nothing once all is gone.
func TestAPurgeHoldsTheLockToItsEnd(t *testing.T) {
	t.Parallel()
	f := newRecorded(t, sharded)
	one, two := f.runtime(f.topology), f.runtime(f.topology)
	f.createNamespace(one)
	f.up(one, run.PlanOptions{})
	first := f.pki(one)
	f.stuckClaim(one)
	items, err := one.Objects(t.Context())
	require.NoError(t, err)
	held, unlock, err := one.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, one.Delete(held, items))
	done := make(chan error, 1)
	go func() { done <- one.Purge(held) }()
	require.NoError(t, two.clusters.home.Connect(t.Context()))
	require.Eventually(t, func() bool {
		claim, err := two.clusters.home.Get(t.Context(), kind.PersistentVolumeClaim, "data")
		return err == nil && claim.GetDeletionTimestamp() != nil
	}, time.Minute, 50*time.Millisecond)

	_, _, err = two.Lock(t.Context())
	require.Equal(t, clierr.Conflict, clierr.Code(err))
	require.ErrorContains(t, err, "another run is in progress")
	for _, name := range []string{topology.InventoryPart, pkiPart} {
		require.NotNil(t, f.live(two, kind.Secret, two.topology.Object(name)), "they are the last that goes")
	}
	f.unstick(two)
	require.NoError(t, <-done)
	require.NoError(t, held.Err())
	require.Empty(t, f.leases(two), "the Lease goes too, and last")
	unlock()
	require.Empty(t, f.leases(two))

	rec, err := two.Record(t.Context())
	require.NoError(t, err)
	require.True(t, rec.Empty())
	f.up(two, run.PlanOptions{})
	require.NotEqual(t, first.CAs[topology.ServerCA].Cert, f.pki(two).CAs[topology.ServerCA].Cert)
}

// The inventory is the last that a purge deletes: if one fails, the next finds the rest by it.
func TestAPurgeThatFailsKeepsTheInventory(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	admin := f.runtime(f.topology)
	f.up(admin, run.PlanOptions{})
	inventory := admin.topology.Object(topology.InventoryPart)
	rule := func(group, resource string, names []any, verbs ...any) map[string]any {
		return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "resourceNames": names, "verbs": verbs}
	}
	const rbac = "rbac.authorization.k8s.io"
	f.create(t, admin, rbac+"/v1", "Role", "roles", "not-the-pki", map[string]any{"rules": []any{
		rule("*", "*", nil, "get", "list"), rule("", "configmaps", nil, "delete"), rule("", "secrets", []any{inventory}, "delete"),
	}})
	f.create(t, admin, rbac+"/v1", "RoleBinding", "rolebindings", "not-the-pki", map[string]any{
		"subjects": []any{map[string]any{"kind": "User", "name": "purger", "apiGroup": rbac}},
		"roleRef":  map[string]any{"kind": "Role", "name": "not-the-pki", "apiGroup": rbac},
	})
	r := f.runtime(f.parse(sharded, "purger"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := r.Record(t.Context())
		assert.NoError(c, err)
	}, time.Minute, 50*time.Millisecond)
	require.ErrorContains(t, r.Purge(t.Context()), "delete Secret/"+f.namespace+"/"+r.topology.Object(pkiPart))
	require.NotNil(t, f.live(admin, kind.Secret, inventory))
	require.NoError(t, admin.Purge(t.Context()))
	require.Nil(t, f.live(admin, kind.Secret, inventory))
}

// The namespace that the setup made takes the Lease with it, some time before it is gone itself: that is not a loss.
func TestTheLockGoesWithItsNamespace(t *testing.T) {
	t.Parallel()
	f := newRecorded(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	held, unlock, err := r.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	items, err := r.Objects(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Delete(held, items))
	done := make(chan error, 1)
	go func() { done <- r.Purge(held) }()

	other := f.runtime(f.topology)
	require.NoError(t, other.clusters.home.Connect(t.Context()))
	all := other.clusters.home.Dynamic.Resource(kind.Namespace.GVR())
	var ns *unstructured.Unstructured
	require.Eventually(t, func() bool {
		ns, err = all.Get(t.Context(), f.namespace, metav1.GetOptions{})
		return err == nil && ns.GetDeletionTimestamp() != nil
	}, time.Minute, 20*time.Millisecond)
	// This is what the controller of namespaces does.
	require.NoError(t, other.clusters.home.Resource(kind.Leases).Delete(t.Context(), f.leases(other)[0].GetName(), metav1.DeleteOptions{}))
	_, _, err = other.Lock(t.Context())
	requireRefused(t, err, "Namespace/"+f.namespace+" (context admin, namespace "+f.namespace+") is being deleted", "kubectl --kubeconfig")
	select {
	case err := <-done:
		require.NoError(t, err)
		t.Fatal("the purge did not wait until the namespace is gone")
	case <-time.After(lease.RenewInterval + time.Second):
	}
	ns, err = all.Get(t.Context(), f.namespace, metav1.GetOptions{})
	require.NoError(t, err)
	unstructured.RemoveNestedField(ns.Object, "spec", "finalizers")
	_, err = all.Update(t.Context(), ns, metav1.UpdateOptions{}, "finalize")
	require.NoError(t, err)
	require.NoError(t, <-done)

	_, _, err = other.Lock(t.Context())
	require.ErrorIs(t, err, run.ErrNoPlace)
	require.Contains(t, clierr.Hint(err), "kcpctl up")
}

// A purge leaves the Lease of a run that has taken it.
func TestAPurgeLeavesTheLeaseOfAnotherRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	one, two := f.locked()
	one.locker.Holder.PID = 1<<22 + 1 // dead, as far as others can tell
	held, unlock, err := one.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	one.held.Load().StopRenewing()
	_, unlockTwo, err := two.Lock(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, one.held.Load().Delete(held), lease.ErrLost)
	require.Len(t, f.leases(two), 1)
	unlockTwo()
}

// What was changed or replaced since it was seen is not deleted.
func TestOnlyWhatWasSeenIsDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.createNamespace(r)
	client := r.clusters.home.Resource(kind.ConfigMap.GVR())
	for name, tc := range map[string]struct {
		meanwhile func(t *testing.T, name string)
		stays     bool
		says      string
	}{
		"nothing happened": {},
		"it is gone": {meanwhile: func(t *testing.T, name string) {
			require.NoError(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
		}},
		"it was changed": {stays: true, says: "was not deleted", meanwhile: func(t *testing.T, name string) {
			f.as("another", r, kind.ConfigMap, name, map[string]any{"data": map[string]any{"new": "data"}})
		}},
		"only its bookkeeping was changed": {meanwhile: func(t *testing.T, name string) {
			f.as("another", r, kind.ConfigMap, name, map[string]any{"data": map[string]any{"a": "b"}})
		}},
		"it was replaced": {stays: true, meanwhile: func(t *testing.T, name string) {
			require.NoError(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
			f.as("another", r, kind.ConfigMap, name, map[string]any{"data": map[string]any{"a": "b"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			object := server.Unique("seen")
			f.as("one", r, kind.ConfigMap, object, map[string]any{"data": map[string]any{"a": "b"}})
			seen := f.live(r, kind.ConfigMap, object)
			if tc.meanwhile != nil {
				tc.meanwhile(t, object)
			}
			err := r.clusters.home.DeleteSeen(t.Context(), kind.ConfigMap, seen)
			if tc.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.says)
				require.Equal(t, clierr.Conflict, clierr.Code(err))
			}
			if live := f.live(r, kind.ConfigMap, object); tc.stays {
				require.NotNil(t, live)
				require.NoError(t, client.Delete(t.Context(), object, metav1.DeleteOptions{}))
			} else {
				require.Nil(t, live)
			}
		})
	}
}

// down --purge asks for everything that it needs, and is refused before it deletes anything.
func TestPreflightOfAPurgeListsWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	admin := f.runtime(f.topology)
	f.up(admin, run.PlanOptions{})
	require.NoError(t, admin.PreflightPurge(t.Context()))

	f.cluster(t, admin, "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", "no-leases", map[string]any{"rules": []any{
		map[string]any{"apiGroups": []any{"", "apps", "policy"}, "resources": []any{"*"}, "verbs": []any{"*"}},
		map[string]any{"apiGroups": []any{"coordination.k8s.io"}, "resources": []any{"leases"}, "verbs": []any{"get", "list", "create", "update"}},
	}})
	f.grant(admin, "RoleBinding", "purger", "no-leases")
	r := f.runtime(f.parse(sharded, "purger"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		err := r.PreflightPurge(t.Context())
		assert.ErrorContains(c, err, "delete leases.coordination.k8s.io in namespace "+f.namespace)
		assert.ErrorContains(c, err, "delete namespaces")
		assert.NotContains(c, err.Error(), "persistentvolumeclaims")
	}, time.Minute, 50*time.Millisecond)

	before := f.versions(admin)
	err := (&deploy.Down{Runtime: r, Purge: true, Observe: func(run.Event) {}, Now: time.Now}).Run(t.Context())
	require.ErrorContains(t, err, "delete leases")
	after := f.versions(admin)
	delete(before, "Lease")
	delete(after, "Lease")
	require.Equal(t, before, after, "nothing was deleted")
}

// A purge of a setup whose PKI is in a directory names what stays.
func TestAPurgeSaysWhatStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	f.createNamespace(f.runtime(f.topology))
	f.stateDir = ""
	directory := pki.DirectoryStore(t.TempDir())
	o := f.options()
	o.Store = directory
	r, err := New(f.topology, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	f.up(r, run.PlanOptions{})
	var said []string
	down := &deploy.Down{Runtime: r, Purge: true, Observe: func(e run.Event) { said = append(said, e.Message) }, Now: time.Now}
	require.NoError(t, down.Run(t.Context()))
	require.Equal(t, "nothing is left but the certificate authorities, which "+directory.String()+" keeps", said[len(said)-1])
	state, err := directory.Load(context.Background())
	require.NoError(t, err)
	require.NotEmpty(t, state.CAs)
}

// Down marks the inventory, so that an interrupted one is seen, and that a plan from before it is not applied.
func TestDownIsSeenByPlansFromBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.up(r, run.PlanOptions{})
	client := r.clusters.home.Resource(kind.Secret.GVR())
	name := r.topology.Object(topology.InventoryPart)
	before, err := client.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	seen := false
	down := &deploy.Down{Runtime: r, Now: time.Now, Observe: func(run.Event) {
		inv, err := r.installation.inventories.Read(t.Context(), r.clusters.home)
		seen = seen || err == nil && inv.Applying != ""
	}}
	require.NoError(t, down.Run(t.Context()))
	require.True(t, seen, "the inventory says that a run is under way")
	after, err := client.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEqual(t, before.GetResourceVersion(), after.GetResourceVersion())
	p, err := f.plan(f.topology, run.PlanOptions{})
	require.NoError(t, err)
	require.Equal(t, len(p.Items), p.Count("create")+p.Count("unchanged"))
	require.NotZero(t, p.Count("create"), "the plan that is made under the lock creates everything again")
	_, err = client.Get(t.Context(), r.topology.Object(pkiPart), metav1.GetOptions{})
	require.False(t, apierrors.IsNotFound(err), "data and PKI stay")
}

// The volumes of a component are deleted, also if its kind has no names, and those of no other component or setup.
func TestPurgeDataDeletesTheVolumesOfOneComponent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharded)
	r := f.runtime(f.topology)
	f.createNamespace(r)
	claim := func(name, setup string, k topology.Kind, of string) {
		own := map[string]any{}
		for key, value := range topology.SelectorOf(setup, k, of) {
			own[key] = value
		}
		f.as("statefulset", r, kind.PersistentVolumeClaim, name, map[string]any{
			"metadata": map[string]any{"labels": own},
			"spec": map[string]any{
				"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
			},
		})
		made := f.live(r, kind.PersistentVolumeClaim, name)
		made.SetFinalizers(nil) // no controller is there that removes them
		_, err := r.clusters.home.Resource(kind.PersistentVolumeClaim.GVR()).Update(t.Context(), made, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	setup := f.topology.Name
	claim("cache", setup, topology.CacheServer, "")
	claim("etcd-cache", setup, topology.Etcd, "cache")
	claim("alpha", setup, topology.Shard, "alpha")
	claim("other-setup", "other", topology.CacheServer, "")
	claims := func() (out []string) {
		all, err := r.clusters.home.List(t.Context(), kind.PersistentVolumeClaim, "")
		require.NoError(t, err)
		for i := range all {
			out = append(out, all[i].GetName())
		}
		return out
	}
	require.NoError(t, r.PurgeData(t.Context(), topology.ID(topology.CacheServer)))
	require.Equal(t, []string{"alpha", "etcd-cache", "other-setup"}, claims())
	require.NoError(t, r.PurgeData(t.Context(), "shard/alpha"))
	require.Equal(t, []string{"etcd-cache", "other-setup"}, claims())
	require.NoError(t, r.PurgeData(t.Context(), "shard"))
	require.Equal(t, []string{"etcd-cache", "other-setup"}, claims(), "no component has this ID")
}

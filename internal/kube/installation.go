package kube

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/kube/kind"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// installation verifies that the clusters of the setup are those of the installation, by their inventories and by what
// this machine knows.
type installation struct {
	topology    *topology.Topology
	clusters    *clusters
	inventories *inventory.Store
	known       *inventory.KnownClusters
	// allowOtherCluster accepts clusters that are not those that the setup was applied to.
	allowOtherCluster bool
}

// readRecord reads the record of the installation.
func (i *installation) readRecord(ctx context.Context) (*record.Record, error) {
	// All clusters, because their UIDs identify clusters that were renamed.
	if err := i.clusters.connect(ctx); err != nil {
		return nil, err
	}
	inv, err := i.inventories.Read(ctx, i.clusters.home)
	if err != nil {
		return nil, err
	}
	if inv.Record.Empty() {
		if err := i.verifyNew(ctx, inv); err != nil {
			return nil, err
		}
	}
	return i.withCurrentNames(inv.Record), nil
}

// verifyNew refuses to start an installation if other clusters of the setup belong to one, or if the setup is installed
// elsewhere. Without the record and the PKI, all later errors would be misleading.
func (i *installation) verifyNew(ctx context.Context, home *inventory.Inventory) error {
	all := []*clusterState{{Client: i.clusters.home, inventory: home}}
	for _, cl := range i.clusters.used() {
		if cl == i.clusters.home {
			continue
		}
		inv, err := i.inventories.Read(ctx, cl)
		if err != nil {
			return err
		}
		all = append(all, &clusterState{Client: cl, inventory: inv})
	}
	if err := i.verifyOwners(all); err != nil || i.allowOtherCluster {
		return err
	}
	known, err := i.known.Load()
	if err != nil {
		return err
	}
	return i.installedElsewhere(ctx, home, known)
}

// withCurrentNames gives the clusters of a record the names that they have in the setup now. A renamed cluster is the
// same one.
func (i *installation) withCurrentNames(rec *record.Record) *record.Record {
	for id, d := range rec.Data {
		for _, cl := range i.clusters.current {
			if cl.UID != "" && d.ClusterUID == string(cl.UID) && d.Namespace == cl.Namespace {
				d.Cluster = cl.Name
				rec.Data[id] = d
			}
		}
	}
	return rec
}

// setOwner writes the owner into the inventory of a cluster, and the record into that of the home cluster.
func (i *installation) setOwner(cl *cluster.Client, inv *inventory.Inventory, rec *record.Record) {
	if rec.Empty() {
		return
	}
	previous := inv.Owner
	inv.Owner = inventory.Owner{
		Installation: rec.Installation, Previous: previous.Previous,
		Home: inventory.PlacementOf(i.clusters.home).Merge(previous.Home),
	}
	if previous.Installation != "" && previous.Installation != rec.Installation {
		inv.Owner.Previous = previous.Installation
	}
	if cl != i.clusters.home {
		return
	}
	out := rec.Purge() // a copy
	for id, d := range out.Data {
		for _, cl := range i.clusters.current {
			if cl.Name == d.Cluster && cl.Namespace == d.Namespace && cl.UID != "" {
				d.ClusterUID = string(cl.UID)
				out.Data[id] = d
			}
		}
	}
	inv.Record = out
}

// verify refuses clusters that are not those that the setup was applied to, unless they are accepted. An accepted
// cluster still counts as unknown until it is recorded.
func (i *installation) verify(ctx context.Context, home *inventory.Inventory) (unknown bool, err error) {
	mismatch, err := i.mismatch(ctx, home)
	if err != nil {
		return false, err
	}
	if i.allowOtherCluster {
		return mismatch != nil, nil
	}
	return mismatch != nil, mismatch
}

// mismatch describes the first cluster that is not the one that the inventory or this machine knows.
func (i *installation) mismatch(ctx context.Context, home *inventory.Inventory) (mismatch, err error) {
	known, err := i.known.Load()
	if err != nil {
		return nil, err
	}
	for _, cl := range i.clusters.current {
		for _, k := range known {
			if k.Is(cl) && mismatch == nil {
				mismatch = otherCluster(cl, k.Placement)
			}
		}
		for _, p := range home.Clusters {
			if p.SameName(inventory.PlacementOf(cl)) && mismatch == nil {
				mismatch = otherCluster(cl, p)
			}
		}
	}
	if mismatch == nil {
		mismatch = i.installedElsewhere(ctx, home, known)
	}
	return mismatch, nil
}

// otherCluster is an error if a cluster is not the previous one. If a UID is unknown, it returns nil.
func otherCluster(cl *cluster.Client, previous inventory.Placement) error {
	if previous.UID == "" || cl.UID == "" || previous.UID == cl.UID {
		return nil
	}
	return clierr.New(clierr.Failed, "choose the right context, or accept the cluster with --allow-other-cluster",
		"the setup was applied to another cluster than this one: cluster %s was context %s (UID %s), and is now context %s (UID %s)",
		cl.Name, previous.Context, previous.UID, cl.KubeContext, cl.UID)
}

// verifyOwners refuses a setup whose places belong to another installation, or whose root shard was moved away from the
// installation that its other places belong to: kcpctl cannot repair that. states begin with the home cluster.
func (i *installation) verifyOwners(states []*clusterState) error {
	home := states[0].inventory
	for _, s := range states {
		o := s.inventory.Owner
		here := inventory.PlacementOf(i.clusters.home).SamePlace(o.Home)
		switch {
		case o.Installation == "", here && o.Installation == home.Owner.Previous:
		case home.Record.Empty() && !here:
			return clierr.New(clierr.Failed,
				fmt.Sprintf("place spec.rootShard on cluster %s, namespace %s, again: moving the root shard is not supported",
					o.Home.Name, o.Home.Namespace),
				"the setup places the root shard of kcp %q on %s, but installation %s has its root shard on cluster %s (context %s, namespace %s), "+
					"with the root workspace, the certificate authorities and the record of the installation",
				i.topology.Name, i.clusters.home.Where(), o.Installation, o.Home.Name, o.Home.Context, o.Home.Namespace)
		case !home.Record.Empty() && o.Installation != home.Record.Installation:
			return clierr.New(clierr.Failed,
				"choose another namespace for the setup on that cluster, or another name for the setup",
				"%s holds components of another installation of kcp %q: that is %s, and this is %s",
				s.Where(), i.topology.Name, o.Installation, home.Record.Installation)
		}
	}
	return nil
}

// verifyDistinct refuses two clusters of the setup that are the same place: each would delete what the other has.
func (i *installation) verifyDistinct(ctx context.Context) error {
	all := i.clusters.used()
	for n, a := range all {
		for _, b := range all[n+1:] {
			same, err := i.samePlace(ctx, a, b)
			if err != nil {
				return err
			}
			if same {
				return clierr.New(clierr.BadInput, "remove one of them from spec.clusters, or give it another namespace",
					"clusters %s and %s of the setup are the same place: %s and %s lead to one cluster, namespace %s",
					a.Name, b.Name, a.Where(), b.Where(), a.Namespace)
			}
		}
	}
	return nil
}

// samePlace reports whether two clusters are one namespace of one cluster. For users who may not read UIDs it compares
// the server's address and the inventory.
func (i *installation) samePlace(ctx context.Context, a, b *cluster.Client) (bool, error) {
	switch {
	case a.Namespace != b.Namespace:
		return false, nil
	case a.UID != "" && b.UID != "":
		return a.UID == b.UID, nil
	case a.Config.Host == b.Config.Host:
		return true, nil
	}
	x, err := i.inventories.Read(ctx, a)
	if err != nil || !x.Exists() {
		return false, err
	}
	y, err := i.inventories.Read(ctx, b)
	return err == nil && x.UID() == y.UID(), err
}

// has reports whether the setup still has a place, by this name or by another.
func (i *installation) has(p inventory.Placement) bool {
	return slices.ContainsFunc(i.clusters.current, func(cl *cluster.Client) bool {
		now := inventory.PlacementOf(cl)
		return now.SameName(p) || now.UID != "" && now.UID == p.UID && now.Namespace == p.Namespace
	})
}

// installedElsewhere returns where the same setup is installed, as an error, if it is not installed here: in another
// context or namespace that this machine has applied it to, or in another namespace of the home cluster if the user may
// list it.
func (i *installation) installedElsewhere(
	ctx context.Context, inv *inventory.Inventory, known []inventory.KnownCluster,
) error {
	if inv.Exists() {
		return nil
	}
	const hint = "choose the right context and namespace (-n), or install a second kcp of this name with --allow-other-cluster"
	home := i.clusters.home
	for _, k := range known {
		here := func(cl *cluster.Client) bool { return inventory.PlacementOf(cl).SamePlace(k.Placement) }
		if !slices.ContainsFunc(i.clusters.current, here) {
			return clierr.New(clierr.Failed, hint,
				"kcp %q was applied to context %s, namespace %s, from this machine, and is not installed in %s",
				i.topology.Name, k.Context, k.Namespace, home.Where())
		}
	}
	all, err := home.Dynamic.Resource(kind.Secret.GVR()).List(ctx, metav1.ListOptions{
		LabelSelector: selector(i.topology), FieldSelector: "type=" + string(inventory.SecretType),
	})
	if apierrors.IsForbidden(err) {
		return nil // without the permission there is nothing to compare with
	}
	if err != nil {
		return home.Explain(err, "look for kcp %q in other namespaces", i.topology.Name)
	}
	for n := range all.Items {
		o := &all.Items[n]
		if o.GetNamespace() == home.Namespace || o.GetName() != i.topology.Object(topology.InventoryPart) {
			continue
		}
		if secret, err := cluster.ToSecret(o); err == nil && inventory.HasRecord(secret) {
			return clierr.New(clierr.Failed, hint,
				"kcp %q is installed in namespace %s of this cluster, and not in %s", i.topology.Name, o.GetNamespace(), home.Where())
		}
	}
	return nil
}

// selector selects everything that belongs to a setup.
func selector(t *topology.Topology) string { return topology.LabelSetup + "=" + t.Name }

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/api/risk"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

// installation verifies that the clusters of the setup belong to the installation, by their inventories and by what
// this machine knows.
type installation struct {
	topology    *topology.Topology
	clusters    *clusters
	inventories *inventory.Store
	known       *inventory.KnownClusters
	witnesses   *witnesses
	// allowOtherCluster accepts clusters that the setup was not applied to.
	allowOtherCluster bool
	// allowLostRecord is the ID of an installation whose record is lost for good: another one takes its places over.
	allowLostRecord string
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
	return i.withCurrentNames(inv.Record), i.witnesses.ask(ctx, inv.Record)
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
	noted, err := i.witnesses.installation(ctx, i.clusters.home)
	if err != nil {
		return err
	}
	if noted != i.allowLostRecord {
		home.Record.Lost = noted
	}
	if err := i.verifyOwners(all, noted); err != nil || i.allowOtherCluster {
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
	for id, a := range rec.Agents {
		for _, cl := range i.clusters.current {
			if cl.UID != "" && a.ClusterUID == string(cl.UID) && a.Namespace == cl.Namespace {
				a.Cluster = cl.Name
				rec.Agents[id] = a
			}
		}
	}
	return rec
}

// mayWrite fails if the clusters have another installation than the one that the setup file names, or an inventory
// that only a later kcpctl may write.
func (i *installation) mayWrite(ctx context.Context) error {
	return i.clusters.each(ctx, func(ctx context.Context, cl *cluster.Client) error {
		inv, err := i.inventories.Read(ctx, cl)
		if err != nil {
			return err
		}
		if cl == i.clusters.home {
			if err := i.named(inv); err != nil {
				return err
			}
		}
		return inv.Writable(cl)
	})
}

// named fails if the home cluster has another installation than the one that the setup file names.
func (i *installation) named(home *inventory.Inventory) error {
	return home.Record.CheckInstallation(i.topology.Installation(), i.clusters.home.Where())
}

// setOwner writes the owner into the inventory of a cluster, and the record into the inventory of the home cluster.
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
			if isAt(cl, d) && d.ClusterUID == "" && cl.UID != "" { // another UID belongs to another cluster
				d.ClusterUID = string(cl.UID)
				out.Data[id] = d
			}
		}
	}
	for id, a := range out.Agents {
		for _, cl := range i.clusters.current {
			if a.Cluster == cl.Name && a.Namespace == cl.Namespace && a.ClusterUID == "" && cl.UID != "" {
				a.ClusterUID = string(cl.UID)
				out.Agents[id] = a
			}
		}
	}
	inv.Record = out.Numbered(inv.Record)
}

// verify refuses clusters that are not those that the setup was applied to, unless they are accepted. An accepted
// cluster still counts as unknown until it is recorded.
func (i *installation) verify(ctx context.Context, home *inventory.Inventory) (unknown bool, err error) {
	if err := i.named(home); err != nil {
		return false, err
	}
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
			if p.Forgotten == "" && p.SameName(inventory.PlacementOf(cl)) && mismatch == nil {
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
	return clierr.New(clierr.Failed, "choose the right context, or accept the cluster with "+risk.OtherCluster.Flag(),
		"the setup was applied to another cluster than this one: cluster %s was context %s (UID %s), and is now "+
			"context %s (UID %s)",
		cl.Name, previous.Context, previous.UID, cl.KubeContext, cl.UID)
}

// verifyOwners refuses a setup whose places belong to another installation, or whose root shard was moved away from the
// installation that its other places belong to: kcpctl cannot repair that. states begin with the home cluster. noted is
// the installation whose records the home cluster has noted.
func (i *installation) verifyOwners(states []*clusterState, noted string) error {
	home, at := states[0].inventory, inventory.PlacementOf(i.clusters.home)
	for _, s := range states {
		o := s.inventory.Owner
		here := at.SamePlace(o.Home)
		switch {
		case s.Client != i.clusters.home && !home.Record.Empty() && !s.inventory.Record.Empty():
			return i.twoHomes(s)
		case o.Installation == "", here && o.Installation == home.Owner.Previous, o.Installation == i.allowLostRecord:
		case home.Record.Empty() && here && o.Installation == noted:
			// Only the inventory is lost. The record is made again from what runs.
		case home.Record.Empty() && (here || at.SameName(o.Home)) && s.Client != i.clusters.home:
			return i.lostRecord(s, here)
		case home.Record.Empty() && !here:
			return clierr.New(clierr.Failed,
				fmt.Sprintf("place spec.rootShard on cluster %s, namespace %s, again: moving the root shard "+
					"is not supported",
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

// twoHomes refuses a place that is the home of an installation itself. It may have the ID of this one: two homes that
// were installed with one PKI share it.
func (i *installation) twoHomes(s *clusterState) error {
	return clierr.New(clierr.Failed,
		"choose another namespace for the setup on that cluster, or remove one of the two installations, with its own "+
			"setup file and kcpctl down --purge",
		"%s has the root shard and the record of another kcp %q, which is installation %s; this one is on %s",
		s.Where(), i.topology.Name, s.inventory.Owner.Installation, i.clusters.home.Where())
}

// lostRecord refuses to begin an installation where the record of another one was, which components elsewhere belong
// to. here means that the cluster is the same. Otherwise it was created again, or the context leads to another one.
func (i *installation) lostRecord(s *clusterState, here bool) error {
	o := s.inventory.Owner
	home := i.clusters.home
	restore := fmt.Sprintf(
		"restore a backup (kcpctl restore), or Secret/%s and Secret/%s in namespace %s and the volumes of the root "+
			"shard",
		i.topology.Object(topology.InventoryPart), i.topology.Object(pkiPart), home.Namespace)
	lost := "its record, which was there, does not exist any more"
	if !here {
		restore = "choose the right context; if the cluster was created again: " + restore +
			", and add " + risk.OtherCluster.Flag()
		lost = fmt.Sprintf("its record was on a cluster of that name with UID %s, and this one has UID %s",
			o.Home.UID, home.UID)
	}
	giveUp := fmt.Sprintf("; if they are lost for good, a new installation takes its places over with kcpctl up %s, "+
		"and --replace-authorities if the PKI is lost, too", risk.LostRecord.Of(o.Installation))
	return clierr.New(clierr.Failed, restore+giveUp,
		"%s belongs to installation %s of kcp %q, whose root shard is on %s, namespace %s: %s; nothing was changed",
		s.Where(), o.Installation, i.topology.Name, o.Home.Name, o.Home.Namespace, lost)
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
				return clierr.New(clierr.BadInput,
					"remove one of them from spec.clusters, or give it another namespace",
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

// has reports whether the setup still has a place, by this name or by another. A place of the same name on another
// cluster is another place.
func (i *installation) has(p inventory.Placement) bool {
	return slices.ContainsFunc(i.clusters.current, func(cl *cluster.Client) bool {
		now := inventory.PlacementOf(cl)
		if now.UID == "" || p.UID == "" {
			return now.SameName(p)
		}
		return now.UID == p.UID && now.Namespace == p.Namespace
	})
}

// previousName returns the name of a place that the setup has left, and whether it has changed: a place of the setup on
// another cluster may have its name now.
func (i *installation) previousName(p inventory.Placement) (name string, changed bool) {
	taken := slices.ContainsFunc(i.clusters.current, func(cl *cluster.Client) bool {
		return inventory.PlacementOf(cl).SameName(p)
	})
	if !taken {
		return p.Name, false
	}
	return p.Name + "-" + strings.Trim(fmt.Sprintf("%.8s", string(p.UID)), "-"), true
}

// isOn reports whether a cluster of the setup is certainly the one of a placement.
func (i *installation) isOn(p inventory.Placement) bool {
	return slices.ContainsFunc(i.clusters.current, func(cl *cluster.Client) bool {
		return cl.UID != "" && cl.UID == p.UID && cl.Namespace == p.Namespace
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
	hint := "choose the right context and namespace (-n), or install a second kcp of this name with " +
		risk.OtherCluster.Flag()
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
				"kcp %q is installed in namespace %s of this cluster, and not in %s", i.topology.Name,
				o.GetNamespace(), home.Where())
		}
	}
	return nil
}

// selector selects everything that belongs to a setup.
func selector(t *topology.Topology) string { return topology.LabelSetup + "=" + t.Name }

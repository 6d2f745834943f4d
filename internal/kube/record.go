package kube

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// The entries of an inventory that say whose it is: the record in the home cluster, the owner in every cluster.
const (
	recordKey = "installation.json"
	ownerKey  = "owner.json"
)

// owner is the installation that an inventory belongs to, and where that has its root shard.
type owner struct {
	Installation string    `json:"installation"`
	Home         placement `json:"home"`
	// Previous is the installation that it was until its PKI was replaced. A run that was interrupted then leaves places that say so.
	Previous string `json:"previous,omitempty"`
}

// Record reads what the installation knows of itself. It is the first that a run asks for.
func (r *Runtime) Record(ctx context.Context) (*record.Record, error) {
	ctx = quiet(ctx)
	// All clusters, because their UIDs say what they were called before.
	if err := r.each(ctx, func(context.Context, *site) error { return nil }); err != nil {
		return nil, err
	}
	inv, err := r.inventory(ctx, r.home)
	if err == nil && inv.record.Empty() {
		err = r.begun(ctx, inv)
	}
	if isDenied(err) {
		// A user who may not do this lacks other permissions too, and should see all of them together.
		if all := r.Preflight(ctx, nil); all != nil {
			err = all
		}
	}
	if err != nil {
		return nil, err
	}
	return r.here(inv.record), nil
}

// begun refuses to begin an installation where the setup's other clusters belong to one, or where the setup is installed
// elsewhere. Without its record and its PKI everything else that would be said of it is misleading.
func (r *Runtime) begun(ctx context.Context, home *inventory) error {
	all := []*survey{{site: r.home, inventory: home}}
	for _, s := range r.sites {
		if s == r.home {
			continue
		}
		inv, err := r.inventory(ctx, s)
		if err != nil {
			return err
		}
		all = append(all, &survey{site: s, inventory: inv})
	}
	if err := r.oneInstallation(all); err != nil || r.options.AllowOtherCluster {
		return err
	}
	remembered, err := r.memories()
	if err != nil && !r.unreadable(err) {
		return err
	}
	return r.elsewhere(ctx, home, remembered)
}

// here is a record with the names that clusters have in the setup now: one that was only renamed is still the same.
func (r *Runtime) here(rec *record.Record) *record.Record {
	for id, d := range rec.Data {
		for _, s := range r.sites {
			if s.uid != "" && d.ClusterUID == string(s.uid) && d.Namespace == s.Namespace {
				d.Cluster = s.Name
				rec.Data[id] = d
			}
		}
	}
	return rec
}

// identify writes into the inventory of a site whose it is, and into that of the home cluster what the installation knows of
// itself.
func (r *Runtime) identify(s *site, inv *inventory, rec *record.Record) {
	if rec.Empty() {
		return
	}
	was := inv.owner
	inv.owner = owner{Installation: rec.Installation, Home: r.home.placement().known(was.Home), Previous: was.Previous}
	if was.Installation != "" && was.Installation != rec.Installation {
		inv.owner.Previous = was.Installation
	}
	if s != r.home {
		return
	}
	out := rec.Purge() // a copy
	for id, d := range out.Data {
		for _, s := range r.sites {
			if s.Name == d.Cluster && s.Namespace == d.Namespace && s.uid != "" {
				d.ClusterUID = string(s.uid)
				out.Data[id] = d
			}
		}
	}
	inv.record = out
}

// oneInstallation refuses a setup whose places belong to another installation, or that has moved its root shard away from the
// installation that its other places belong to: nothing makes that right. surveys begin with the home cluster.
func (r *Runtime) oneInstallation(surveys []*survey) error {
	home := surveys[0].inventory
	for _, sv := range surveys {
		o := sv.inventory.owner
		here := r.home.placement().place(o.Home)
		switch {
		case o.Installation == "", here && o.Installation == home.owner.Previous:
		case home.record.Empty() && !here:
			return clierr.New(clierr.Failed,
				fmt.Sprintf("place spec.rootShard on cluster %s, namespace %s, again: moving the root shard is not supported", o.Home.Name, o.Home.Namespace),
				"kcp %q (installation %s) has its root shard on cluster %s (context %s, namespace %s), and the setup places it on %s: "+
					"the root workspace, the certificate authorities and the record of the installation are there",
				r.topology.Name, o.Installation, o.Home.Name, o.Home.Context, o.Home.Namespace, r.home.where())
		case !home.record.Empty() && o.Installation != home.record.Installation:
			return clierr.New(clierr.Failed, "choose another namespace for the setup on that cluster, or another name for the setup",
				"%s holds components of another installation of kcp %q: %s, and this is %s", sv.where(), r.topology.Name, o.Installation, home.record.Installation)
		}
	}
	return nil
}

// onePlace refuses two clusters of the setup that are the same place: each would delete what the other has.
func (r *Runtime) onePlace(ctx context.Context) error {
	for i, a := range r.sites {
		for _, b := range r.sites[i+1:] {
			same, err := r.samePlace(ctx, a, b)
			if err != nil {
				return err
			}
			if same {
				return clierr.New(clierr.BadInput, "remove one of them from spec.clusters, or give it another namespace",
					"clusters %s and %s of the setup are the same place: %s and %s lead to one cluster, namespace %s", a.Name, b.Name, a.where(), b.where(), a.Namespace)
			}
		}
	}
	return nil
}

// elsewhere says where the same setup is installed, if it is not installed here: in another context or namespace that this machine
// has applied it to, or in another namespace of the home cluster, as far as the user may look there.
func (r *Runtime) elsewhere(ctx context.Context, home *inventory, memories []memory) error {
	if home.exists() {
		return nil
	}
	const hint = "choose the right context and namespace (-n), or install a second kcp of this name with --allow-other-cluster"
	for _, m := range memories {
		if !slices.ContainsFunc(r.sites, func(s *site) bool { return s.placement().place(m.placement) }) {
			return clierr.New(clierr.Failed, hint, "kcp %q was applied to context %s, namespace %s, from this machine, and nothing of it is in %s",
				r.topology.Name, m.Context, m.Namespace, r.home.where())
		}
	}
	all, err := r.home.dynamic.Resource(known("Secret").gvr()).List(ctx, metav1.ListOptions{
		LabelSelector: r.selector(), FieldSelector: "type=" + string(typeInventory),
	})
	if apierrors.IsForbidden(err) {
		return nil // without the permission there is nothing to compare with
	}
	if err != nil {
		return r.home.explain(err, "look for kcp %q in other namespaces", r.topology.Name)
	}
	for i := range all.Items {
		o := &all.Items[i]
		if o.GetNamespace() == r.home.Namespace || o.GetName() != r.topology.Object(topology.InventoryPart) {
			continue
		}
		if secret, err := toSecret(o); err == nil && len(secret.Data[recordKey]) > 0 {
			return clierr.New(clierr.Failed, hint, "kcp %q is installed in namespace %s of this cluster, and nothing of it is in %s",
				r.topology.Name, o.GetNamespace(), r.home.where())
		}
	}
	return nil
}

package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/kube/kind"
	"github.com/kcpctl/kcpctl/internal/kube/lease"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/record"
)

// inventoryWriter writes the inventories at the start and at the end of a run.
type inventoryWriter struct {
	*observer
	purger *purger
	holder lease.Holder
	now    func() time.Time
}

// begin writes the superset of the previous kinds and those of a plan, and the record, before the first object is
// written. The home cluster comes first: it has the other clusters, and the installation that they belong to.
func (w *inventoryWriter) begin(ctx context.Context, p *plan.Plan, rec *record.Record) error {
	if p.Empty() {
		return nil
	}
	if err := w.clusters.previous.find(ctx); err != nil {
		return err
	}
	begin := func(ctx context.Context, cl *cluster.Client) error {
		return w.inventories.Update(ctx, cl, func(inv *inventory.Inventory) {
			inv.Kinds = inventory.GroupKinds(cl, p.Items, inv.Kinds...)
			inv.Applying = fmt.Sprintf("since %s by %s", w.now().UTC().Format(time.RFC3339), w.holder)
			w.installation.setOwner(cl, inv, rec)
			if cl == w.clusters.home {
				inv.Clusters = w.placements(inv.Clusters)
			}
		})
	}
	if err := begin(ctx, w.clusters.home); err != nil {
		return err
	}
	return w.clusters.everywhereElse(ctx, begin)
}

// finish writes the exact kinds, the record, and what was applied, after the deletions of a plan. It writes nothing
// that is written already. The home cluster comes last, because it marks the run as finished.
func (w *inventoryWriter) finish(ctx context.Context, p *plan.Plan, rec *record.Record, a plan.Applied) error {
	if err := w.dropEmptyPrevious(ctx); err != nil {
		return err
	}
	if err := w.clusters.everywhereElse(ctx, func(ctx context.Context, cl *cluster.Client) error {
		return w.settle(ctx, cl, p, rec, func(*inventory.Inventory) {})
	}); err != nil {
		return err
	}
	if err := w.settle(ctx, w.clusters.home, p, rec, func(inv *inventory.Inventory) {
		inv.Clusters = w.placements(inv.Clusters)
		inv.History = plan.Remember(inv.History, plan.Revision{
			Time: w.now(), Version: w.inventories.Version, User: w.holder.User + "@" + w.holder.Host,
			Setup: a.Setup, Only: a.Only, Without: a.Without,
		})
	}); err != nil {
		return err
	}
	return w.installation.known.Remember(w.clusters.current)
}

// settle makes the inventory of a cluster exact.
func (w *inventoryWriter) settle(
	ctx context.Context, cl *cluster.Client, p *plan.Plan, rec *record.Record, also func(*inventory.Inventory),
) error {
	return w.inventories.Update(ctx, cl, func(inv *inventory.Inventory) {
		inv.Kinds, inv.Applying = inventory.GroupKinds(cl, wanted(p)), ""
		w.installation.setOwner(cl, inv, rec)
		also(inv)
	})
}

// dropEmptyPrevious forgets those previous clusters on which nothing is left, not even data.
func (w *inventoryWriter) dropEmptyPrevious(ctx context.Context) error {
	var kept []*cluster.Client
	for _, cl := range w.clusters.previous.get() {
		claims, err := cl.List(ctx, kind.PersistentVolumeClaim, selector(w.topology))
		if err != nil {
			return err
		}
		inv, err := w.inventories.Read(ctx, cl)
		if err != nil {
			return err
		}
		left, err := members(ctx, cl, w.topology, func(k kind.Kind) bool { return always(k) || optional(inv)(k) })
		if err != nil {
			return err
		}
		if len(claims)+len(left) > 0 {
			kept = append(kept, cl)
			continue
		}
		if err := w.purger.purgeCluster(ctx, cl); err != nil {
			return err
		}
	}
	w.clusters.previous.keep(kept)
	return nil
}

// placements are where the setup is now. Those that did not change are as they were before.
func (w *inventoryWriter) placements(before []inventory.Placement) []inventory.Placement {
	var out []inventory.Placement
	for _, cl := range slices.Concat(w.clusters.current, w.clusters.previous.get()) {
		now, known := inventory.PlacementOf(cl), false
		for _, b := range before {
			now, known = now.Merge(b), known || now.SameName(b)
		}
		if known || w.clusters.leftOut(cl.Name) == nil { // nothing was ever applied to the others
			out = append(out, now)
		}
	}
	return append(out, w.clusters.previous.placements()...)
}

// history returns the setups that were applied last, oldest first.
func (w *inventoryWriter) history(ctx context.Context) ([]plan.Revision, error) {
	if err := w.clusters.home.Connect(ctx); err != nil {
		return nil, err
	}
	inv, err := w.inventories.Read(ctx, w.clusters.home)
	if err != nil {
		return nil, err
	}
	return inv.History, nil
}

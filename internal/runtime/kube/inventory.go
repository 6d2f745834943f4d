package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
)

// inventoryWriter writes the inventories at the start and at the end of a run.
type inventoryWriter struct {
	*observer
	purger *purger
	holder lease.Holder
	// command is the command that is run.
	command string
	// begun is this run, from begin to finish.
	begun *record.Run
	now   func() time.Time
}

// Begin writes the superset of the previous kinds and the kinds of a plan, and the record, before the first object is
// written. The home cluster comes first: it has the other clusters, and the installation that they belong to.
func (w *inventoryWriter) Begin(ctx context.Context, p *plan.Plan, rec *record.Record) error {
	if p.Empty() {
		return nil
	}
	if err := w.clusters.previous.find(ctx); err != nil {
		return err
	}
	w.begun = w.self()
	written := rec
	begin := func(ctx context.Context, cl *cluster.Client) error {
		return w.update(ctx, cl, p, func(inv *inventory.Inventory) {
			inv.Kinds = inventory.GroupKinds(cl, p.Items, inv.Kinds...)
			inv.Applying = fmt.Sprintf("since %s by %s", w.now().UTC().Format(time.RFC3339), w.holder)
			w.installation.setOwner(cl, inv, rec)
			if cl == w.clusters.home {
				written = inv.Record
				inv.Clusters = w.placements(inv.Clusters)
				inv.Run = w.begun
			}
		})
	}
	if err := begin(ctx, w.clusters.home); err != nil {
		return err
	}
	if err := w.clusters.everywhereElse(ctx, begin); err != nil {
		return err
	}
	return w.installation.witnesses.note(ctx, written)
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
	written := rec
	if err := w.settle(ctx, w.clusters.home, p, rec, func(inv *inventory.Inventory) {
		written = inv.Record
		inv.Run = nil
		inv.Clusters = w.placements(inv.Clusters)
		inv.History = plan.Remember(inv.History, plan.Revision{
			Time: w.now(), Version: w.inventories.Version, User: w.user(),
			Setup: a.Setup, File: a.File, Only: a.Only, Without: a.Without,
		})
	}); err != nil {
		return err
	}
	w.begun = nil
	if err := w.installation.witnesses.note(ctx, written); err != nil {
		return err
	}
	return w.installation.known.Remember(w.clusters.current)
}

// self is this run.
func (w *inventoryWriter) self() *record.Run {
	return &record.Run{Command: w.command, User: w.holder.User, Host: w.holder.Host, PID: w.holder.PID,
		Since: w.now().UTC().Truncate(time.Second)}
}

// noteTimeout limits how long a run that has failed takes to remember the reason.
const noteTimeout = 5 * time.Second

// ended remembers why this run has not finished, if it has begun.
func (w *inventoryWriter) ended(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	begun := w.begun
	if begun == nil {
		return
	}
	_ = w.inventories.Update(ctx, w.clusters.home, func(inv *inventory.Inventory) {
		if inv.Applying != "" {
			inv.Run = begun.End(why, w.now())
		}
	})
}

// unfinished returns the last run that has begun to write and not finished; nil if there is none.
func (w *inventoryWriter) unfinished(ctx context.Context) (*record.Run, error) {
	inv, err := w.inventories.Read(ctx, w.clusters.home)
	if err != nil || inv.Applying == "" {
		return nil, err // a run of an earlier kcpctl may have finished, and kept what it does not know
	}
	return record.Unfinished(inv.Run), nil
}

// user is who runs kcpctl, as the history names users.
func (w *inventoryWriter) user() string { return w.holder.User + "@" + w.holder.Host }

// settle makes the inventory of a cluster exact.
func (w *inventoryWriter) settle(
	ctx context.Context, cl *cluster.Client, p *plan.Plan, rec *record.Record, also func(*inventory.Inventory),
) error {
	return w.update(ctx, cl, p, func(inv *inventory.Inventory) {
		inv.Kinds, inv.Applying = inventory.GroupKinds(cl, wanted(p)), ""
		w.installation.setOwner(cl, inv, rec)
		also(inv)
	})
}

// update changes the inventory on a cluster. Where the namespace does not exist and the plan wants nothing, there is no
// inventory to write: nothing was applied there yet, or a purge has deleted it all.
func (w *inventoryWriter) update(
	ctx context.Context, cl *cluster.Client, p *plan.Plan, change func(*inventory.Inventory),
) error {
	err := w.inventories.Update(ctx, cl, change)
	if apierrors.IsNotFound(err) && cl != w.clusters.home && len(inventory.GroupKinds(cl, wanted(p))) == 0 {
		return nil
	}
	return err
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
		left, err := members(ctx, cl, w.topology, func(k kind.Kind) bool { return always(k) || optional(inv, true)(k) })
		if err != nil {
			return err
		}
		if len(claims)+len(left) > 0 {
			kept = append(kept, cl)
			continue
		}
		if err := w.purger.leave(ctx, cl); err != nil {
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
			now.Forgotten = ""
		}
		if known || w.clusters.leftOut(cl.Name) == nil { // nothing was ever applied to the others
			out = append(out, now)
		}
	}
	return append(out, w.clusters.previous.placements()...)
}

// History returns the setups that were applied last, oldest first.
func (w *inventoryWriter) History(ctx context.Context) ([]plan.Revision, error) {
	if err := w.clusters.home.Connect(ctx); err != nil {
		return nil, err
	}
	inv, err := w.inventories.Read(ctx, w.clusters.home)
	if err != nil {
		return nil, err
	}
	for i := range inv.History {
		inv.History[i].Own = inv.History[i].User == w.user()
	}
	return inv.History, nil
}

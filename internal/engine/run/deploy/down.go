package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/agents"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// DownRuntime is what Down needs of a runtime.
type DownRuntime interface {
	run.Archive
	run.Locker
	run.Applier
	run.Keeper
	run.Deleter
	run.Purger
	run.Finder
	kcp.Dialer
}

// Tenants are what workspaces run in the physical clusters of spec.workloads. It is theirs, so that it runs on.
type Tenants interface {
	// Left returns what is still there, such as "3 namespaces of workspaces in cluster c1".
	Left(ctx context.Context) []string
}

// Down removes what a setup applied, dependants first: what is remembered, whatever the setup file says.
type Down struct {
	Runtime DownRuntime
	// Topology is the setup that runs, as far as it is known: through it, objects in workspaces are found.
	Topology *topology.Topology
	// Orphan are agents that are purged although workspaces have objects of their APIs.
	Orphan []topology.ID
	// Purge also removes data, PKI and everything else that a later Up would continue with.
	Purge bool
	// Tenants are what workspaces run in physical clusters. Nil: the setup has no physical clusters.
	Tenants Tenants
	// Shown are the objects that the user has agreed to remove: a run that finds others refuses. Nil agrees to all.
	Shown   []plan.Item
	Observe run.Observer
	Now     func() time.Time

	*reporter
}

// Run deletes every object of the setup. If it fails, it can be run again. Where nothing was applied, only a purge has
// something to do.
func (d *Down) Run(ctx context.Context) error {
	d.reporter = run.NewReporter(d.Observe, d.Now)
	return run.Locked(ctx, d.Runtime, d.remove, func(ctx context.Context) error {
		if d.Purge {
			return d.purge(ctx)
		}
		return nil
	})
}

func (d *Down) remove(ctx context.Context) error {
	known, err := d.Runtime.Record(ctx)
	if err != nil {
		return err
	}
	objects, err := d.Runtime.Objects(ctx)
	if err != nil {
		return err
	}
	if err := d.agreed(objects); err != nil {
		return err
	}
	objects = d.withoutLost(objects)
	if err := d.mayRemove(ctx, known, objects); err != nil {
		return err
	}
	removeAgents, known, err := d.agents(ctx, known, objects)
	if err != nil {
		return err
	}
	if err := d.Runtime.Begin(ctx, &plan.Plan{Items: objects, Stale: true}, known); err != nil {
		return err
	}
	byKind := map[topology.Kind][]plan.Item{}
	for _, it := range objects {
		byKind[it.Component.Kind()] = append(byKind[it.Component.Kind()], it)
	}
	if err := d.stopSyncers(ctx, byKind); err != nil {
		return err
	}
	if err := removeAgents(ctx); err != nil {
		return err
	}
	for _, stage := range topology.Stages() {
		err := parallel.Each(ctx, stage, func(ctx context.Context, kind topology.Kind) error {
			return d.delete(ctx, string(kind), byKind[kind])
		})
		if err != nil {
			return err
		}
	}
	// Objects of unknown kinds of components were written by another release.
	others, _ := plan.Split(objects,
		func(it plan.Item) bool { return !slices.Contains(topology.Kinds(), it.Component.Kind()) })
	if err := d.delete(ctx, "others", others); err != nil {
		return err
	}
	if d.Purge {
		return d.purge(ctx)
	}
	return d.Runtime.Finish(ctx, &plan.Plan{}, known, plan.Applied{})
}

// mayRemove refuses to remove what cannot be removed completely, and keys that encrypt the data that it keeps.
func (d *Down) mayRemove(ctx context.Context, known *record.Record, objects []plan.Item) error {
	if d.Purge {
		return d.Runtime.PreflightPurge(ctx)
	}
	return d.keepsKeys(ctx, known, objects)
}

// stopSyncers removes the controller and the syncers before anything in workspaces is deleted: as long as they run,
// what a workspace loses is deleted in the physical clusters, too. Without them, it only waits for its deletion. The
// controller goes first, so that it does not judge clusters whose accounts are removed, and the accounts go after the
// processes that use them.
func (d *Down) stopSyncers(ctx context.Context, byKind map[topology.Kind][]plan.Item) error {
	if err := d.delete(ctx, string(topology.Workloads), byKind[topology.Workloads]); err != nil {
		return err
	}
	accounts, processes := plan.InWorkspaces(byKind[topology.Physical])
	if err := d.delete(ctx, string(topology.Physical), processes, accounts); err != nil {
		return err
	}
	delete(byKind, topology.Workloads)
	delete(byKind, topology.Physical)
	return nil
}

// agents returns what removes the agents before everything else. A purge is refused while workspaces have objects of
// their APIs: their copies would remain. Without a purge, the objects wait for the agents of the next up, and the
// record that agents returns has these agents.
func (d *Down) agents(ctx context.Context, known *record.Record,
	objects []plan.Item) (func(context.Context) error, *record.Record, error) {
	x := &agents.Withdrawer{Runtime: d.Runtime, Now: d.Now, Reporter: d.reporter,
		Changes: agents.Changes{Topology: d.Topology, Known: known, Orphan: d.Orphan}}
	all := x.Deleted(objects, d.Purge)
	if len(all) == 0 {
		return func(context.Context) error { return nil }, known, nil
	}
	var err error
	if x.State, err = d.Runtime.Store().Load(ctx); err != nil {
		return nil, nil, err
	}
	if d.Purge {
		if err := x.Allowed(ctx, all); err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context) error {
			if err := x.CarryOut(ctx, all, true); err != nil {
				return err
			}
			return d.Runtime.Keep(ctx, x.Without(all))
		}, known, nil
	}
	wait := map[topology.ID]record.Agent{}
	for _, w := range all {
		if c := d.Topology.Component(w.Agent); c != nil {
			wait[w.Agent] = agents.Recorded(c)
		}
	}
	return func(ctx context.Context) error { return x.CarryOut(ctx, all, false) }, known.WithAgents(wait), nil
}

// agreed refuses to delete objects that were added since the user was asked.
func (d *Down) agreed(objects []plan.Item) error {
	if d.Shown == nil {
		return nil
	}
	shown := map[plan.Ref]bool{}
	for _, it := range d.Shown {
		shown[it.Ref] = true
	}
	for _, it := range objects {
		if !shown[it.Ref] {
			return clierr.New(clierr.Conflict, "run the command again: it shows the current objects",
				"another run has added %s since you were asked; nothing was removed", it.Ref)
		}
	}
	return nil
}

// withoutLost returns objects without the ones of orphaned agents on clusters that do not answer: they are not deleted,
// and neither are the copies.
func (d *Down) withoutLost(objects []plan.Item) []plan.Item {
	lost, rest := plan.Split(objects,
		func(it plan.Item) bool { return it.Live == nil && slices.Contains(d.Orphan, it.Component) })
	for _, id := range d.Orphan {
		of, _ := plan.Split(lost, func(it plan.Item) bool { return it.Component == id })
		if len(of) > 0 {
			d.Note(fmt.Sprintf("%s: %s cannot be reached: %s of it stay there, with the state of the agent", id,
				of[0].Workspace, gather.Count(len(of), "object", "objects")))
		}
	}
	return rest
}

func (d *Down) purge(ctx context.Context) error {
	d.Step("purge", run.Running, "data, certificate authorities, history")
	if err := d.Runtime.Purge(ctx); err != nil {
		return d.Fail("purge", err)
	}
	d.Step("purge", run.Done, d.left(ctx))
	return nil
}

// left says what a purge has left.
func (d *Down) left(ctx context.Context) string {
	var all []string
	if d.Tenants != nil {
		all = d.Tenants.Left(ctx)
	}
	for _, id := range d.Orphan {
		all = append(all, fmt.Sprintf("the copies of objects of %s on its cluster", id))
	}
	if d.Runtime.KeepsPKI() {
		all = append(all, fmt.Sprintf("the certificate authorities, which %s keeps", d.Runtime.Store()))
	}
	if len(all) == 0 {
		return "nothing is left"
	}
	return "nothing is left but " + strings.Join(all, "; ")
}

// delete deletes items, one list after the other.
func (d *Down) delete(ctx context.Context, name string, lists ...[]plan.Item) error {
	objects := gather.Count(len(slices.Concat(lists...)), "object", "objects")
	if len(slices.Concat(lists...)) == 0 {
		return nil
	}
	d.Step(name, run.Running, "removing "+objects)
	for _, items := range lists {
		if len(items) == 0 {
			continue
		}
		if err := d.Runtime.Delete(ctx, items); err != nil {
			return d.Fail(name, err)
		}
	}
	d.Step(name, run.Done, objects+" removed")
	return nil
}

package run

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Down removes what a setup applied, dependants first. It needs no setup file: it removes what is remembered.
type Down struct {
	Runtime Runtime
	// Purge also removes data, PKI and everything else that a later Up would continue with.
	Purge bool
	// Shown are the objects that the user has agreed to remove: a run that finds others refuses. Nil agrees to all.
	Shown   []plan.Item
	Observe Observer
	Now     func() time.Time
}

// downOrder are the kinds of components, dependants first.
func downOrder() []topology.Kind {
	return []topology.Kind{
		topology.Kubeconfig, topology.VirtualWorkspaces, topology.FrontProxy, topology.Shard, topology.RootShard,
		topology.CacheServer, topology.Etcd, topology.Base,
	}
}

// Run deletes every object of the setup. What fails can be run again.
func (d *Down) Run(ctx context.Context) error {
	err := Locked(ctx, d.Runtime, d.remove)
	if errors.Is(err, ErrNoPlace) && d.Purge {
		return d.purge(ctx)
	}
	if errors.Is(err, ErrNoPlace) {
		return nil
	}
	return err
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
	if err := d.Runtime.Begin(ctx, &plan.Plan{Items: objects, Stale: true}, known); err != nil {
		return err
	}
	left := objects
	for _, kind := range downOrder() {
		var items []plan.Item
		items, left = split(left, func(it plan.Item) bool { return it.Component.Kind() == kind })
		if err := d.delete(ctx, string(kind), items); err != nil {
			return err
		}
	}
	// What no kind claims was written by another release.
	if err := d.delete(ctx, "others", left); err != nil {
		return err
	}
	if d.Purge {
		return d.purge(ctx)
	}
	return d.Runtime.Finish(ctx, &plan.Plan{}, known, plan.Applied{})
}

// agreed refuses to delete what was added since the user was asked.
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
			return clierr.New(clierr.Conflict, "run the command again: it shows what there is now",
				"another run has added %s since you were asked; nothing was removed", it.Ref)
		}
	}
	return nil
}

func (d *Down) purge(ctx context.Context) error {
	d.step("purge", Running, "data, certificate authorities, history")
	if err := d.Runtime.Purge(ctx); err != nil {
		d.step("purge", Failed, firstLine(err))
		return err
	}
	d.step("purge", Done, "nothing is left")
	return nil
}

func (d *Down) delete(ctx context.Context, name string, items []plan.Item) error {
	if len(items) == 0 {
		return nil
	}
	d.step(name, Running, "removing "+count(len(items), "object", "objects"))
	if err := d.Runtime.Delete(ctx, items); err != nil {
		d.step(name, Failed, firstLine(err))
		return err
	}
	d.step(name, Done, count(len(items), "object", "objects")+" removed")
	return nil
}

func (d *Down) step(name string, s Status, msg string) {
	d.Observe(Event{Time: d.Now(), Scope: Step, Name: name, Status: s, Message: msg})
}

// split takes the items apart that fit.
func split(items []plan.Item, fits func(plan.Item) bool) (in, out []plan.Item) {
	in = slices.DeleteFunc(slices.Clone(items), func(it plan.Item) bool { return !fits(it) })
	out = slices.DeleteFunc(slices.Clone(items), fits)
	return in, out
}

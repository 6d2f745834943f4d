package run

import (
	"context"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Down removes what a setup applied, dependants first. It needs no setup file: it removes what is remembered.
type Down struct {
	Runtime Runtime
	// Purge also removes data, PKI and everything else that a later Up would go on with.
	Purge   bool
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

// Objects are all objects that Run is going to delete, by component.
func (d *Down) Objects(ctx context.Context) ([]plan.Item, error) {
	return d.Runtime.Objects(ctx)
}

// Run deletes objects, as Objects has found them. What fails can be run again.
func (d *Down) Run(ctx context.Context, objects []plan.Item) error {
	if len(objects) > 0 {
		unlock, err := d.Runtime.Lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
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
	if !d.Purge {
		return nil
	}
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

package local

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Apply remembers objects, writes files and starts processes. What runs as it should is not touched.
func (r *Runtime) Apply(ctx context.Context, items []plan.Item, _ run.PlanOptions) error {
	var processes []entry
	for _, it := range items {
		e := entry{it.Component, it.Want}
		if it.Kind == kindDeployment {
			processes = append(processes, e)
			continue
		}
		if err := r.layout.writeEntry(e); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, e := range processes {
		g.Go(func() error { return r.applyProcess(ctx, e) })
	}
	return g.Wait()
}

// applyProcess brings a process up to date.
func (r *Runtime) applyProcess(ctx context.Context, e entry) error {
	w, err := r.layout.workload(e.Object)
	if err != nil {
		return err
	}
	files, err := w.files(r.applied)
	if err != nil {
		return err
	}
	bin, err := r.options.Binaries.get(ctx, r.release(e.Component), w.program)
	if err != nil {
		return err
	}
	p := r.process(w.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := r.layout.writeEntry(e); err != nil {
		return err
	}
	why, err := r.stale(w, r.applied)
	if err != nil || why == "" {
		return err
	}
	if err := w.write(files); err != nil {
		return err
	}
	restarts := int32(0)
	before, err := r.layout.record(w.name)
	if err == nil && before != nil && before.Hash == w.hash {
		restarts = before.Restarts + 1
	}
	if err := r.stopLocked(ctx, p, w); err != nil {
		return err
	}
	if before != nil {
		r.awaitPorts(ctx, e.Component)
	}
	return r.start(p, w, bin, restarts)
}

// applied finds the object that was applied last.
func (r *Runtime) applied(kind, name string) (*unstructured.Unstructured, error) {
	e, err := r.layout.entry(kind, name)
	if err != nil || e == nil {
		return nil, err
	}
	return e.Object, nil
}

// release is the kcp release that a component runs.
func (r *Runtime) release(id topology.ID) string {
	if c := r.topology.Component(id); c != nil {
		return c.Version
	}
	return r.topology.Setup.Spec.Version
}

// Delete stops processes and removes their files, but not their data, then the objects.
func (r *Runtime) Delete(ctx context.Context, items []plan.Item) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, it := range items {
		if it.Kind == kindDeployment {
			g.Go(func() error { return r.deleteProcess(gctx, it.Live) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, it := range items {
		if err := r.layout.removeEntry(it.Kind, it.Name); err != nil {
			return err
		}
	}
	return r.layout.removeEmpty()
}

func (r *Runtime) deleteProcess(ctx context.Context, obj *unstructured.Unstructured) error {
	w, err := r.layout.workload(obj)
	if err != nil {
		return err
	}
	if err := r.stop(ctx, w); err != nil {
		return err
	}
	return errors.Join(w.remove(), r.layout.removeLogs(w.name))
}

// StopAll stops all processes, dependants first, and keeps everything else: the next up starts them again.
func (r *Runtime) StopAll(ctx context.Context) error {
	all, err := r.layout.workloads()
	if err != nil {
		return err
	}
	ofKind := map[topology.Kind][]*workload{}
	for id, w := range all {
		ofKind[id.Kind()] = append(ofKind[id.Kind()], w)
	}
	for _, kind := range []topology.Kind{
		topology.FrontProxy, topology.VirtualWorkspaces, topology.Shard, topology.RootShard, topology.CacheServer,
	} {
		var g errgroup.Group
		g.SetLimit(parallel)
		for _, w := range ofKind[kind] {
			g.Go(func() error { return r.stop(ctx, w) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

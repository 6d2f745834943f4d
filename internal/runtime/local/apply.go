package local

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// Apply records objects, writes files and starts processes. Processes that are up to date keep running.
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

// applyProcess starts or replaces the process of a Deployment, if it is not up to date.
func (r *Runtime) applyProcess(ctx context.Context, e entry) error {
	w, err := r.layout.workload(e.Object)
	if err != nil {
		return err
	}
	find := r.orUser(r.layout.applied)
	files, err := w.files(find)
	if err != nil {
		return err
	}
	need, err := r.needOf(e.Component, w)
	if err != nil {
		return err
	}
	bin, err := r.options.Binaries.get(ctx, need)
	if err != nil {
		return err
	}
	defer r.supervisor.lock(w.name)()
	if err := r.layout.writeEntry(e); err != nil {
		return err
	}
	why, onlyFiles, err := r.outdated(w, find)
	if err != nil || why == "" {
		return err
	}
	if err := w.write(files); err != nil || onlyFiles && e.Component.Kind().Reloads() {
		return err
	}
	if err := markDirectory(w.etcdDir()); err != nil {
		return err
	}
	return r.supervisor.replace(ctx, e.Component, w, bin)
}

// applied finds the object that was applied last.
func (l *Layout) applied(kind, name string) (*unstructured.Unstructured, error) {
	e, err := l.entry(kind, name)
	if err != nil || e == nil {
		return nil, err
	}
	return e.Object, nil
}

// release returns the kcp release that a component runs.
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
	if err := r.supervisor.stop(ctx, w); err != nil {
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
	for _, stage := range topology.Stages() {
		var g errgroup.Group
		g.SetLimit(parallel)
		for id, w := range all {
			if slices.Contains(stage, id.Kind()) {
				g.Go(func() error { return r.supervisor.stop(ctx, w) })
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

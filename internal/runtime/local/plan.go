package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/runtime/local/download"
	"github.com/kcpctl/kcpctl/internal/runtime/local/process"
)

// Plan compares the rendered objects with the applied ones, and their processes and files. It omits objects that have
// no counterpart on this machine.
func (r *Runtime) Plan(_ context.Context, objects []render.Object, _ run.PlanOptions) (*plan.Plan, error) {
	all, err := r.layout.entries()
	if err != nil {
		return nil, err
	}
	applied := map[string]entry{}
	for _, e := range all {
		applied[objectFile(e.Object.GetKind(), e.Object.GetName())] = e
	}
	find := r.orUser(rendered(objects))
	p := &plan.Plan{Stale: r.applying()}
	for _, o := range objects {
		if !hasCounterpart(o.GetKind()) {
			continue
		}
		key := objectFile(o.GetKind(), o.GetName())
		item, err := r.compare(o, applied[key], find)
		if err != nil {
			return nil, err
		}
		p.Items = append(p.Items, *item)
		delete(applied, key)
	}
	for _, e := range all { // in order
		if _, ok := applied[objectFile(e.Object.GetKind(), e.Object.GetName())]; ok {
			p.Items = append(p.Items, e.item(plan.Delete))
		}
	}
	return p, nil
}

// here returns what an object of a kind is on this machine.
func here(kind string) plan.Thing {
	if kind == kindDeployment {
		return plan.Process
	}
	return plan.Files
}

// rendered returns a lookup in rendered objects.
func rendered(objects []render.Object) lookup {
	byFile := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		byFile[objectFile(o.GetKind(), o.GetName())] = o.Unstructured
	}
	return func(kind, name string) (*unstructured.Unstructured, error) {
		return byFile[objectFile(kind, name)], nil
	}
}

func (r *Runtime) compare(o render.Object, have entry, find lookup) (*plan.Item, error) {
	o.Unstructured = plan.KeepRestart(o.Unstructured, have.Object)
	item := &plan.Item{
		Ref: plan.RefOf("", o.Unstructured), Component: o.Component, Action: plan.Create,
		Want: o.Unstructured, Live: have.Object, Merged: o.Unstructured, Here: here(o.GetKind()),
	}
	if have.Object == nil {
		return item, nil
	}
	item.Action = plan.Unchanged
	same, err := equal(o.Unstructured, have.Object)
	if err != nil {
		return nil, err
	}
	if !same || have.Component != o.Component {
		item.Action = plan.Change
	}
	if o.GetKind() != kindDeployment {
		return item, nil
	}
	w, err := r.layout.workload(o.Unstructured)
	if err != nil {
		return nil, err
	}
	why, _, err := r.outdated(w, find)
	if err != nil || why == "" {
		return item, err
	}
	item.Action = plan.Change
	if same { // so that a diff shows the reason
		item.Live, item.Merged = withProcess(item.Live, why), withProcess(item.Merged, "running")
	}
	return item, nil
}

func equal(a, b *unstructured.Unstructured) (bool, error) {
	x, errX := json.Marshal(a.Object)
	y, errY := json.Marshal(b.Object)
	return bytes.Equal(x, y), errors.Join(errX, errY)
}

// withProcess returns a copy of an object with the state of its process. Comparisons ignore the status.
func withProcess(o *unstructured.Unstructured, process string) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.Object["process"] = process
	return o
}

// outdated returns why the process of a workload must be replaced, or only its files if onlyFiles is set. It returns
// nothing if the process is up to date.
func (r *Runtime) outdated(w *workload, find lookup) (why string, onlyFiles bool, err error) {
	files, err := w.files(find)
	if err != nil {
		return "", false, err
	}
	live, rec, err := r.layout.locate(w)
	if err != nil {
		return "", false, err
	}
	if why := notAsRecorded(w, live, rec); why != "" {
		return why, false, nil
	}
	if changed := differ(files); changed != "" {
		return changed + " was changed", true, nil
	}
	why, err = r.otherBinary(w, rec.Binary)
	return why, false, err
}

// notAsRecorded returns why the processes of a workload are not the one that its record describes.
func notAsRecorded(w *workload, live []process.Identity, rec *processRecord) string {
	switch {
	case rec == nil && len(live) > 0:
		return "running without a record"
	case rec == nil:
		return "not running"
	case len(live) == 0:
		return rec.ended()
	case rec.Stopping:
		return "stopping"
	case len(live) > 1 || live[0] != rec.Identity:
		return "running more than once"
	case rec.Hash != w.hash:
		return "running an earlier configuration"
	}
	return ""
}

// otherBinary returns why a process would be started from another file now. It ignores a file that was removed: the
// process no longer needs it.
func (r *Runtime) otherBinary(w *workload, have binary) (string, error) {
	if dir := r.options.Binaries.Dir; dir != "" && w.program != topology.ManagedBy {
		want, err := filepath.Abs(filepath.Join(dir, w.program))
		if err != nil {
			return "", err
		}
		_, err = os.Stat(want)
		own := err == nil || download.Project(w.program) == download.KCP // the others may be elsewhere
		if own && want != have.Path {
			return "running " + have.Path, nil
		}
	}
	if have.replaced() {
		return fmt.Sprintf("running a previous version of %s", have.Path), nil
	}
	return "", nil
}

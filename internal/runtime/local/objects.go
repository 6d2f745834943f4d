package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/runtime/local/disk"
)

// The kinds of objects that have a counterpart on this machine: files, and processes that read them. Others are
// ignored: a Service, for instance, is only a port of the loopback interface.
const (
	kindSecret     = "Secret"
	kindConfigMap  = "ConfigMap"
	kindDeployment = "Deployment"
)

func hasCounterpart(kind string) bool {
	return kind == kindSecret || kind == kindConfigMap || kind == kindDeployment
}

// entry is an object as it was applied. It is written before its files and its process exist, and removed after them,
// so that everything that exists has an entry.
type entry struct {
	Component topology.ID                `json:"component"`
	Object    *unstructured.Unstructured `json:"object"`
}

func (e entry) item(a plan.Action) plan.Item {
	return plan.Item{
		Ref: plan.RefOf("", e.Object), Component: e.Component, Action: a, Live: e.Object,
		Here: here(e.Object.GetKind()),
	}
}

func objectFile(kind, name string) string { return kind + "." + name + ".json" }

func (l *Layout) writeEntry(e entry) error {
	return disk.WriteJSON(l.path(dirObjects, objectFile(e.Object.GetKind(), e.Object.GetName())), e)
}

func (l *Layout) removeEntry(kind, name string) error {
	return disk.RemoveState(l.path(dirObjects, objectFile(kind, name)))
}

// entry reads the applied object of a kind and name. It returns nil if there is none.
func (l *Layout) entry(kind, name string) (*entry, error) {
	return readEntry(l.path(dirObjects, objectFile(kind, name)))
}

func readEntry(path string) (*entry, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e := &struct {
		Component topology.ID    `json:"component"`
		Object    map[string]any `json:"object"`
	}{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, e); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &entry{e.Component, &unstructured.Unstructured{Object: e.Object}}, nil
}

// entries reads all applied objects, in the order of their files.
func (l *Layout) entries() ([]entry, error) {
	files, err := os.ReadDir(l.path(dirObjects))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") || filepath.Ext(f.Name()) != ".json" {
			continue // left by an interrupted run
		}
		e, err := readEntry(l.path(dirObjects, f.Name()))
		if err != nil {
			return nil, err
		}
		if e != nil {
			out = append(out, *e)
		}
	}
	return out, nil
}

// workloads returns the workloads that were applied, by component.
func (l *Layout) workloads() (map[topology.ID]*workload, error) {
	all, err := l.entries()
	if err != nil {
		return nil, err
	}
	out := map[topology.ID]*workload{}
	for _, e := range all {
		if e.Object.GetKind() != kindDeployment {
			continue
		}
		if out[e.Component], err = l.workload(e.Object); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// workloadOf returns the applied workload of a component, or nil.
func (l *Layout) workloadOf(c *topology.Component) (*workload, error) {
	e, err := l.entry(kindDeployment, c.Object())
	if err != nil || e == nil {
		return nil, err
	}
	return l.workload(e.Object)
}

// removeEmpty removes the directories that are not needed once everything is deleted.
func (l *Layout) removeEmpty() error {
	if all, err := l.entries(); err != nil || len(all) > 0 {
		return err
	}
	for _, dir := range []string{dirObjects, dirProcesses, dirLogs} {
		if err := os.RemoveAll(l.path(dir)); err != nil {
			return explain(err)
		}
	}
	return nil
}

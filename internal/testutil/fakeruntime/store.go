package fakeruntime

import (
	"context"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// Replace only records the call.
func (r *Runtime) Replace(ctx context.Context, c *topology.Component) error {
	return r.write(ctx, "Replace "+string(c.ID()))
}

// ReplaceOutdated only records the call.
func (r *Runtime) ReplaceOutdated(ctx context.Context, c *topology.Component) error {
	return r.write(ctx, "ReplaceOutdated "+string(c.ID()))
}

// Read returns an object that was applied, or one of Made.
func (r *Runtime) Read(
	ctx context.Context, c *topology.Component, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	found, err := r.Find(ctx,
		plan.Ref{Cluster: c.Cluster.Name, GroupVersionKind: gvk, Namespace: namespace, Name: name}, "")
	if len(found) == 0 || err != nil {
		return nil, err
	}
	return &found[0], nil
}

// Find returns the objects that were applied, and those of Made, of the kind and in the namespace of a reference: the
// one with its name, or without a name those that a label selector matches.
func (r *Runtime) Find(_ context.Context, at plan.Ref, selector string) ([]unstructured.Unstructured, error) {
	selected, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []unstructured.Unstructured
	for _, it := range slices.Concat(r.sorted(), r.Made) {
		if it.Cluster == at.Cluster && it.GroupVersionKind == at.GroupVersionKind && it.Namespace == at.Namespace &&
			(at.Name == it.Name || at.Name == "" && selected.Matches(labels.Set(it.Live.GetLabels()))) {
			out = append(out, *it.Live.DeepCopy())
		}
	}
	return out, nil
}

// Make stores an object that a component has made itself, also while a command runs.
func (r *Runtime) Make(made plan.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Made = append(slices.DeleteFunc(r.Made, func(it plan.Item) bool { return it.Ref == made.Ref }), made)
}

// Log sets what a component has logged.
func (r *Runtime) Log(id topology.ID, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logged[id] = text
}

// Purge deletes everything.
func (r *Runtime) Purge(ctx context.Context) error {
	if err := r.write(ctx, "Purge"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pki, r.record, r.notedID, r.namespace = &pki.State{}, nil, "", false
	clear(r.live)
	clear(r.volumes)
	return nil
}

// PurgeData only records the call.
func (r *Runtime) PurgeData(ctx context.Context, id topology.ID) error {
	return r.write(ctx, "PurgeData "+string(id))
}

// Logs copies what a component has logged.
func (r *Runtime) Logs(_ context.Context, c *topology.Component, _ run.LogOptions, w io.Writer) error {
	r.mu.Lock()
	text := r.logged[c.ID()]
	r.mu.Unlock() // the writer may wait for the logs of others
	_, err := io.WriteString(w, text)
	return err
}

// PreflightPurge finds nothing.
func (r *Runtime) PreflightPurge(context.Context) error { return r.hook("PreflightPurge") }

// PurgeScope returns one place.
func (r *Runtime) PurgeScope(context.Context) ([]string, error) {
	return []string{"the fake"}, r.hook("PurgeScope")
}

// KeepsPKI returns false: Purge deletes the PKI.
func (r *Runtime) KeepsPKI() bool { return false }

// Close has nothing to close.
func (r *Runtime) Close() error { return nil }

// store is the runtime as a pki.Store.
type store Runtime

func (s *store) Load(context.Context) (*pki.State, error) {
	r := (*Runtime)(s)
	if err := r.hook("Load"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pki, r.requireReachable()
}

func (s *store) Save(ctx context.Context, state *pki.State) error {
	r := (*Runtime)(s)
	if err := r.write(ctx, "Save"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pki = state
	return nil
}

// Forget has nothing to delete: the certificates are in the objects.
func (s *store) DeleteLeaves(context.Context, []pki.LeafKey) error { return nil }

func (s *store) String() string { return "memory" }

// Belong runs the hook of the call.
func (r *Runtime) Belong(context.Context, []plan.Item) error { return r.hook("Belong") }

// Inherited returns Predecessor.
func (r *Runtime) Inherited(context.Context) (*pki.State, error) {
	return r.Predecessor, r.hook("Inherited")
}

// InheritedRelease returns PredecessorRelease.
func (r *Runtime) InheritedRelease(context.Context, plan.Item) (string, error) {
	return r.PredecessorRelease, r.hook("InheritedRelease")
}

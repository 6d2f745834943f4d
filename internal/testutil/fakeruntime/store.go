package fakeruntime

import (
	"context"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Replace only records the call.
func (r *Runtime) Replace(ctx context.Context, c *topology.Component) error {
	return r.write(ctx, "Replace "+string(c.ID()))
}

// Read returns an object that was applied, or one of Made.
func (r *Runtime) Read(
	ctx context.Context, c *topology.Component, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	found, err := r.Find(ctx, plan.Ref{Cluster: c.Cluster.Name, GroupVersionKind: gvk, Namespace: namespace, Name: name}, "")
	if len(found) == 0 || err != nil {
		return nil, err
	}
	return &found[0], nil
}

// Find returns the objects that were applied, and those of Made, of the kind and in the namespace of a reference: the one with its name, or
// without a name those with a label.
func (r *Runtime) Find(_ context.Context, at plan.Ref, label string) ([]unstructured.Unstructured, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []unstructured.Unstructured
	for _, it := range slices.Concat(r.sorted(), r.Made) {
		_, labelled := it.Live.GetLabels()[label]
		if it.Cluster == at.Cluster && it.GroupVersionKind == at.GroupVersionKind && it.Namespace == at.Namespace &&
			(at.Name == it.Name || at.Name == "" && (label == "" || labelled)) {
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
	r.pki, r.record, r.namespace = &pki.State{}, nil, false
	clear(r.live)
	return nil
}

// PurgeData only records the call.
func (r *Runtime) PurgeData(ctx context.Context, id topology.ID) error {
	return r.write(ctx, "PurgeData "+string(id))
}

// Logs copies what a component has logged.
func (r *Runtime) Logs(_ context.Context, c *topology.Component, _ run.LogOptions, w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := io.WriteString(w, r.logged[c.ID()])
	return err
}

// PreflightPurge finds nothing.
func (r *Runtime) PreflightPurge(context.Context) error { return r.hook("PreflightPurge") }

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

package fakeruntime

import (
	"context"
	"io"

	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Replace only notes that it was called.
func (r *Runtime) Replace(ctx context.Context, c *topology.Component) error {
	return r.write(ctx, "Replace "+string(c.ID()))
}

// Purge forgets everything.
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

// PurgeData has none to delete.
func (r *Runtime) PurgeData(ctx context.Context, id topology.ID) error {
	return r.write(ctx, "PurgeData "+string(id))
}

// Logs has none.
func (r *Runtime) Logs(context.Context, *topology.Component, run.LogOptions, io.Writer) error {
	return nil
}

// Close has nothing to close.
func (r *Runtime) Close() error { return nil }

// store is the runtime as a pki.Store.
type store Runtime

func (s *store) Load(context.Context) (*pki.State, error) {
	r := (*Runtime)(s)
	if err := r.hook("Load"); err != nil {
		return nil, err
	}
	return r.PKI(), nil
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

func (s *store) String() string { return "memory" }

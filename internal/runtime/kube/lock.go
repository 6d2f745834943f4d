package kube

import (
	"context"
	"errors"
	"sync"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/lease"
)

// Lock takes the setup's Lease and renews it until unlock. The context that it returns ends when the Lease is lost. It
// fails with run.ErrNoPlace if the namespace does not exist.
func (r *Runtime) Lock(ctx context.Context) (locked context.Context, unlock func(), err error) {
	lock, err := r.locker.Acquire(ctx)
	if errors.Is(err, lease.ErrNoNamespace) {
		return nil, nil, clierr.New(clierr.Failed, "create it with kcpctl up",
			"%w: namespace %s does not exist (%s)", run.ErrNoPlace, r.clusters.home.Namespace, r.clusters.home.Where())
	}
	if err != nil {
		return nil, nil, err
	}
	if err := r.installation.mayWrite(ctx); err != nil {
		lock.Release(context.WithoutCancel(ctx))
		return nil, nil, err
	}
	r.held.Store(lock)
	r.clusters.previous.reset()
	return lock.Context(), sync.OnceFunc(func() {
		r.held.Store(nil)
		lock.Release(context.WithoutCancel(ctx))
	}), nil
}

// Runs returns the run that holds the Lease, and the one that has begun to write and not finished.
func (r *Runtime) Runs(ctx context.Context) (current, unfinished *record.Run, err error) {
	if current, err = r.locker.Current(ctx); err != nil {
		return nil, nil, err
	}
	unfinished, err = r.inventoryWriter.unfinished(ctx)
	return current, unfinished, err
}

// Ended remembers in the inventory why the run has not finished, unless another run may hold the Lease.
func (r *Runtime) Ended(ctx context.Context, why error) {
	if lock := r.held.Load(); lock == nil || lock.Lost() {
		return
	}
	r.inventoryWriter.ended(ctx, why)
}

package fakeruntime

import (
	"context"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// Lock takes no lock. With Lose the run loses it.
func (r *Runtime) Lock(ctx context.Context) (context.Context, func(), error) {
	if !r.placed() {
		return nil, nil, run.ErrNoPlace
	}
	if err := r.write(ctx, "Lock"); err != nil {
		return nil, nil, err
	}
	held, lose := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.lose = lose
	r.mu.Unlock()
	return held, func() { lose(nil); _ = r.write(context.WithoutCancel(ctx), "Unlock") }, nil
}

// Runs returns Current, and the run that has called Begin and not Finish.
func (r *Runtime) Runs(context.Context) (current, unfinished *record.Run, err error) {
	if err := r.hook("Runs"); err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale {
		unfinished = record.Unfinished(r.begun)
	}
	return r.Current, unfinished, nil
}

// Ended remembers why a run has not finished.
func (r *Runtime) Ended(_ context.Context, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale && r.begun != nil {
		r.begun = r.begun.End(why, time.Now())
	}
}

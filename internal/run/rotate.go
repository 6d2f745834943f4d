package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Rotate replaces authorities or the service-account key while kcp serves: trust first everywhere, then what is trusted. All
// go through a phase together. It can be interrupted at any moment and run again.
type Rotate struct {
	pki.Rotations
	Topology *topology.Topology
	Store    pki.Store
	// Roll changes the PKI and brings the whole setup up with it, one component after another: it returns when everybody
	// has what is new. Without a change it completes what an earlier run has begun. The title says what for.
	Roll func(ctx context.Context, title string, change func(*pki.State) (*pki.State, error)) error
	// Keep changes the PKI's store only.
	Keep func(ctx context.Context, change func(*pki.State) (*pki.State, error)) error
	Now  func() time.Time
	// Pause ends a run that begins a rotation when the next one is trusted, before it signs: the next run goes on.
	Pause bool
}

// Run rotates until the new one signs, and returns the phase that the rotation is in then. An authority stays in
// pki.PhaseSwitch, in which what the previous one has signed is still accepted, until Finish. Where clients that know only
// the present authority would be cut off by the switch, a run ends before it, and the next one goes on.
func (r *Rotate) Run(ctx context.Context) (pki.Phase, error) {
	state, err := r.load(ctx)
	if err != nil {
		return "", err
	}
	phase := r.Phase(state)
	behind := r.In(state, phase)
	switch phase {
	case pki.PhaseNone:
		if err := r.advance(ctx, behind, phase, "a new %s: everybody learns to trust it"); err != nil {
			return "", err
		}
		if r.Pause || r.Stops(state) != nil {
			return pki.PhaseDistribute, nil
		}
	case pki.PhaseDistribute:
		if err := r.settle(ctx, behind, "the new %s: make sure that everybody trusts it"); err != nil {
			return phase, err
		}
	case pki.PhaseSwitch:
		if err := r.settle(ctx, behind, "the new %s signs: make sure that everybody has what it signed"); err != nil {
			return phase, err
		}
		return r.end(ctx)
	}
	if state, err = r.load(ctx); err != nil {
		return pki.PhaseDistribute, err
	}
	behind = r.In(state, pki.PhaseDistribute)
	if err := r.advance(ctx, behind, pki.PhaseDistribute, "the new %s signs: everybody gets what it signed"); err != nil {
		return pki.PhaseDistribute, err
	}
	return r.end(ctx)
}

// Stops says why the rotation has to pause before the switch, if so.
func (r *Rotate) Stops(s *pki.State) error {
	if !r.Has(pki.ServerCA) {
		return nil // only servers are verified by those who are not of the setup
	}
	return s.CAs[pki.ServerCA].CannotVouch()
}

// end forgets the next service-account key, which is the present one by now: earlier keys go on to verify. The previous
// authority is kept until Finish.
func (r *Rotate) end(ctx context.Context) (pki.Phase, error) {
	if !r.OfServiceAccount() {
		return pki.PhaseSwitch, nil
	}
	if err := r.Keep(ctx, func(s *pki.State) (*pki.State, error) {
		return r.Advance(r.Topology, s, pki.PhaseSwitch, r.Now())
	}); err != nil {
		return pki.PhaseSwitch, err
	}
	return pki.PhaseNone, nil
}

// Finish ends the rotation of authorities: what the previous ones have signed is not accepted any more. Of service-account
// keys it leaves only the one that signs. First it makes sure that everybody has what the new ones signed.
func (r *Rotate) Finish(ctx context.Context) error {
	state, err := r.load(ctx)
	if err != nil {
		return err
	}
	distributed, switched := r.In(state, pki.PhaseDistribute), r.In(state, pki.PhaseSwitch)
	switch {
	case len(distributed) > 0:
		return unfinished(distributed, pki.PhaseDistribute)
	case r.OfServiceAccount() && len(switched) > 0:
		return unfinished(switched, pki.PhaseSwitch)
	case r.OfServiceAccount():
		return r.Roll(ctx, fmt.Sprintf("the %s: earlier keys are dropped", r), pki.DropEarlierKeys)
	case len(switched) == 0:
		return r.settle(ctx, r.Rotations, "the %s is not being rotated: make sure that everybody knows")
	}
	if err := r.settle(ctx, switched, "the new %s signs: make sure that everybody has what it signed"); err != nil {
		return err
	}
	return r.advance(ctx, switched, pki.PhaseSwitch, "the previous %s is dropped")
}

func unfinished(which pki.Rotations, phase pki.Phase) error {
	return clierr.New(clierr.Failed, "run the command without --finish first: it continues",
		"the rotation of the %s is in the phase %q: the new one does not sign everywhere yet", which, phase)
}

func (r *Rotate) settle(ctx context.Context, which pki.Rotations, title string) error {
	return r.Roll(ctx, fmt.Sprintf(title, which), nil)
}

// advance takes rotations to the next phase, in the store and everywhere.
func (r *Rotate) advance(ctx context.Context, which pki.Rotations, from pki.Phase, title string) error {
	return r.Roll(ctx, fmt.Sprintf(title, which), func(s *pki.State) (*pki.State, error) {
		return which.Advance(r.Topology, s, from, r.Now())
	})
}

func (r *Rotate) load(ctx context.Context) (*pki.State, error) {
	s, err := r.Store.Load(ctx)
	if err == nil && len(s.CAs) == 0 {
		err = clierr.New(clierr.Failed, "run kcpctl up first", "kcp %q has no certificates yet: there is nothing in %s", r.Topology.Name, r.Store)
	}
	return s, err
}

// ChangeStore changes what the PKI's store keeps, and nothing else: it needs the namespace, which it makes at most, the lock,
// and the store. A change to authorities that are not the installation's is refused.
func ChangeStore(ctx context.Context, t *topology.Topology, rt Runtime, change func(*pki.State) (*pki.State, error)) error {
	keep := func(ctx context.Context) error {
		r, err := rt.Record(ctx)
		if err != nil {
			return err
		}
		state, err := rt.Store().Load(ctx)
		if err != nil {
			return err
		}
		if state, err = change(state); err != nil {
			return err
		}
		if err := r.CheckAuthorities(state, rt.Store().String()); err != nil {
			return err
		}
		if err := rt.Store().Save(ctx, state); err != nil {
			return fmt.Errorf("save %s: %w", rt.Store(), err)
		}
		return nil
	}
	err := Locked(ctx, rt, keep)
	if !errors.Is(err, ErrNoPlace) {
		return err
	}
	if err := applyHome(ctx, t, rt); err != nil {
		return err
	}
	return Locked(ctx, rt, keep)
}

// applyHome makes the namespace that the setup's state lives in.
func applyHome(ctx context.Context, t *topology.Topology, rt Runtime) error {
	o, err := render.Namespace(t, t.Home)
	if err != nil {
		return err
	}
	return rt.Apply(ctx, []plan.Item{{
		Ref: plan.RefOf(o.Cluster, o.Unstructured), Component: o.Component, Action: plan.Create, Want: o.Unstructured,
	}}, PlanOptions{})
}

package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Rotate takes certificate authorities or a key from one phase of a rotation to the next while kcp
// serves: first everything trusts the new one, then the new one signs. All rotations go through a phase together. It
// can be interrupted at any moment and run again. RotateCAs and RotateKey add how a rotation ends.
type Rotate struct {
	Rotations pki.Rotations
	Topology  *topology.Topology
	Store     pki.Store
	// Up rolls each step out, one component after another. Nil changes the store only: the user applies it.
	Up *Up
	// Now is the clock.
	Now func() time.Time
	// Pause ends a run that begins a rotation when the next one is trusted, before it signs: the next run continues.
	Pause bool
	// Show is called with what each step would change. Nothing is changed then. Nil: it is not a dry run.
	Show func(*plan.Plan)
	// Begin shows what the next step is for, until end is called.
	Begin func(title string) (end func())
}

// RotateCAs rotates certificate authorities. Until Finish, certificates signed by the previous ones are still accepted.
type RotateCAs struct{ Rotate }

// RotateKey rotates the key that signs the tokens of service accounts. Until Finish, earlier keys still verify them.
type RotateKey struct{ Rotate }

// Run rotates until the new one signs, and returns the phase that the rotation is in then. It stops before the switch
// if that would cut off clients that know only the current authority; the next run continues.
func (r *Rotate) Run(ctx context.Context) (pki.Phase, error) {
	state, err := r.load(ctx)
	if err == nil {
		err = r.Rotations.CheckSupplied(state)
	}
	if err != nil {
		return "", err
	}
	phase := r.Rotations.Phase(state)
	behind := r.Rotations.In(state, phase)
	switch phase {
	case pki.PhaseNone:
		if err := r.advance(ctx, behind, phase, fmt.Sprintf("distribute a new %s", behind)); err != nil {
			return "", err
		}
		if r.Pause || r.Show != nil || r.Stops(state) != nil {
			return pki.PhaseDistribute, nil
		}
	case pki.PhaseDistribute:
		applied, err := r.settle(ctx, fmt.Sprintf("make sure that the new %s is known everywhere", behind))
		stops := r.Stops(state) != nil
		if err == nil && stops && !applied {
			err = r.reloaded(ctx, behind)
		}
		if err != nil || applied && (r.Pause || stops) { // the run that began was interrupted before it stopped here
			return phase, err
		}
	case pki.PhaseSwitch:
		_, err := r.settle(ctx, switched(behind))
		return phase, err
	}
	if state, err = r.load(ctx); err != nil {
		return pki.PhaseDistribute, err
	}
	behind = r.Rotations.In(state, pki.PhaseDistribute)
	if err := r.advance(ctx, behind, pki.PhaseDistribute, fmt.Sprintf("switch to the new %s", behind)); err != nil {
		return pki.PhaseDistribute, r.orUnusable(ctx, behind, err)
	}
	return pki.PhaseSwitch, nil
}

// orUnusable explains the error of a switch if no run can succeed: the setup cannot work with the new authority, which
// has expired for example. Nothing was changed then.
func (r *Rotate) orUnusable(ctx context.Context, which pki.Rotations, err error) error {
	state, unknown := r.Store.Load(ctx)
	if unknown != nil || ctx.Err() != nil || which.OfServiceAccount() || which.OfEncryption() ||
		len(which.In(state, pki.PhaseDistribute)) < len(which) {
		return err
	}
	why := r.mayServe(which, state)
	if why == nil {
		return err
	}
	return clierr.New(clierr.Failed, "end the rotation with "+rotateCA(which)+" --cancel: the current one continues "+
		"to sign; then rotate to another one", "the new %s cannot be used; nothing was changed: %w", which, why)
}

// rotateCA is the command that rotates authorities.
func rotateCA(which pki.Rotations) string {
	command := "kcpctl certs rotate-ca"
	for _, r := range which {
		command += " " + strings.TrimSuffix(r.Key(), "-ca")
	}
	return command
}

// switched is the title of a run that makes sure of the switch.
func switched(which pki.Rotations) string {
	return fmt.Sprintf("make sure that everything has switched to the new %s", which)
}

// Stops returns why the rotation has to pause before the switch; nil if it does not.
func (r *Rotate) Stops(s *pki.State) error {
	if !r.Rotations.Has(topology.ServerCA) {
		return nil // only servers are verified by clients outside the setup
	}
	return s.CAs[topology.ServerCA].CrossSignable()
}

// Run rotates the key until the new one signs. Then nothing is left to do but to forget that it was the next one.
func (r *RotateKey) Run(ctx context.Context) (pki.Phase, error) {
	phase, err := r.Rotate.Run(ctx)
	if err != nil || phase != pki.PhaseSwitch || r.Show != nil {
		return phase, err
	}
	if err := ChangeStore(ctx, r.Topology, r.storeRuntime(), r.Store, r.next(r.Rotations, pki.PhaseSwitch)); err != nil {
		return pki.PhaseSwitch, err
	}
	return pki.PhaseNone, nil
}

// MayFinish fails if the new key does not sign everywhere yet.
func (r *RotateKey) MayFinish(ctx context.Context) error {
	state, err := r.load(ctx)
	if err != nil {
		return err
	}
	if phase := r.Rotations.Phase(state); phase != pki.PhaseNone {
		return unfinished(r.Rotations, phase)
	}
	return nil
}

// Finish removes all keys but the one that signs.
func (r *RotateKey) Finish(ctx context.Context) error {
	if err := r.MayFinish(ctx); err != nil {
		return err
	}
	_, err := r.roll(ctx, fmt.Sprintf("remove the previous %s", r.Rotations), pki.DropEarlierKeys)
	return err
}

// MayFinish fails if the new authorities do not sign everywhere yet.
func (r *RotateCAs) MayFinish(ctx context.Context) error {
	state, err := r.load(ctx)
	if err != nil {
		return err
	}
	if distributed := r.Rotations.In(state, pki.PhaseDistribute); len(distributed) > 0 {
		return unfinished(distributed, pki.PhaseDistribute)
	}
	return nil
}

// Finish ends the rotation: certificates that the previous authorities have signed are no longer accepted. First it
// makes sure that every component has certificates of the new ones, and uses them.
func (r *RotateCAs) Finish(ctx context.Context) error {
	if err := r.MayFinish(ctx); err != nil {
		return err
	}
	state, err := r.load(ctx)
	if err != nil {
		return err
	}
	rotated := r.Rotations.In(state, pki.PhaseSwitch)
	if len(rotated) == 0 {
		_, err := r.settle(ctx, fmt.Sprintf("the %s is not being rotated: make sure that everything is up to date",
			r.Rotations))
		return err
	}
	if _, err := r.settle(ctx, switched(rotated)); err != nil {
		return err
	}
	if err := r.reloaded(ctx, rotated); err != nil {
		return err
	}
	return r.advance(ctx, rotated, pki.PhaseSwitch, fmt.Sprintf("remove the previous %s", rotated))
}

// Cancel ends a rotation before the new authorities sign: they are no longer trusted. After an interruption it is run
// again. It returns the rotations that were canceled.
func (r *RotateCAs) Cancel(ctx context.Context) (pki.Rotations, error) {
	state, err := r.load(ctx)
	if err == nil {
		_, err = r.Rotations.Cancel(state)
	}
	if err != nil {
		return nil, err
	}
	if err := r.allowCancel(ctx); err != nil {
		return nil, err
	}
	canceled := r.Rotations.In(state, pki.PhaseDistribute)
	if len(canceled) == 0 {
		_, err := r.settle(ctx, fmt.Sprintf("the %s is not being rotated: make sure that everything is up to date",
			r.Rotations))
		return nil, err
	}
	_, err = r.roll(ctx, fmt.Sprintf("cancel the rotation of the %s", canceled), canceled.Cancel)
	return canceled, err
}

// allowCancel lets the store be without the next authorities of the record: an interrupted run may have removed them.
func (r *RotateCAs) allowCancel(ctx context.Context) error {
	if r.Up == nil {
		return nil
	}
	known, err := r.Up.Runtime.Record(ctx)
	if err != nil {
		return err
	}
	for _, rotation := range r.Rotations {
		if next := known.Authorities[rotation.Key()].Next; next != "" {
			r.Up.Options.AllowTrustChange = append(r.Up.Options.AllowTrustChange, next)
		}
	}
	return nil
}

func unfinished(which pki.Rotations, phase pki.Phase) error {
	return clierr.New(clierr.Failed, "run the command without --finish first: it continues",
		"the rotation of the %s is in the phase %q: the new one does not sign everywhere yet", which, phase)
}

// settle completes an earlier step without a change, and reports whether there was something to apply. A dry run shows
// the next step instead.
func (r *Rotate) settle(ctx context.Context, title string) (applied bool, err error) {
	if r.Show != nil {
		return false, nil
	}
	return r.roll(ctx, title, nil)
}

// advance takes rotations to the next phase, in the store and everywhere.
func (r *Rotate) advance(ctx context.Context, which pki.Rotations, from pki.Phase, title string) error {
	_, err := r.roll(ctx, title, r.next(which, from))
	return err
}

// next is the step from a phase to the next one.
func (r *Rotate) next(which pki.Rotations, from pki.Phase) pkiChange {
	return func(s *pki.State) (*pki.State, error) {
		out, err := which.Advance(r.Topology, s, from, r.Now())
		if err == nil && from == pki.PhaseNone && len(which.Supplied()) > 0 {
			if err = r.mayServe(which, out); err != nil {
				err = clierr.New(clierr.BadInput, "use a different certificate authority", "with the new %s, %w", which,
					err)
			}
		}
		return out, err
	}
}

// mayServe fails if the setup could not work with the next authorities alone, because of constraints for example.
// Otherwise only the switch would fail, or the end, when everything trusts them.
func (r *Rotate) mayServe(which pki.Rotations, state *pki.State) (err error) {
	for _, from := range []pki.Phase{pki.PhaseDistribute, pki.PhaseSwitch} {
		if state, err = which.Advance(r.Topology, state, from, r.Now()); err != nil {
			return err
		}
	}
	res, err := pki.Ensure(r.Topology, state, pki.Options{Now: r.Now()})
	if err != nil {
		return err
	}
	return render.Prove(r.Topology, res.State, r.Now())
}

// roll changes the PKI and brings the whole setup up with it. It returns when everything has what is new, and reports
// whether there was something to apply.
func (r *Rotate) roll(ctx context.Context, title string, change pkiChange) (applied bool, err error) {
	if r.Up == nil {
		desired, err := LoadDesired(ctx, r.Topology, r.Store,
			DesiredOptions{Now: r.Now(), Offline: true, change: change})
		if err != nil || r.Show != nil {
			return false, err
		}
		return false, desired.Save(ctx)
	}
	defer r.Begin(title)()
	r.Up.change = change
	defer func() { r.Up.change = nil }()
	r.Up.Options.DryRun = r.Show != nil
	res, err := r.Up.Run(ctx)
	switch {
	case err != nil:
		return false, err
	case r.Show != nil:
		r.Show(res.Plan)
		return false, res.Refused
	case change != nil && res.Plan.Empty(): // it concerns no component, so the run has saved nothing
		return false, ChangeStore(ctx, r.Topology, r.storeRuntime(), r.Store, change)
	}
	return !res.Plan.Empty(), nil
}

// storeRuntime is the runtime whose lock protects the store; nil if only the store is changed.
func (r *Rotate) storeRuntime() StoreRuntime {
	if r.Up == nil {
		return nil
	}
	return r.Up.Runtime
}

func (r *Rotate) load(ctx context.Context) (*pki.State, error) {
	s, err := r.Store.Load(ctx)
	if err != nil || len(s.CAs) > 0 {
		return s, err
	}
	if rt := r.storeRuntime(); rt != nil {
		known, err := rt.Record(ctx)
		if err == nil {
			err = known.CheckAuthorities(s, r.Store.String())
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, clierr.New(clierr.Failed, "run kcpctl up first",
		"kcp %q has no certificates yet: %s is empty", r.Topology.Name, r.Store)
}

// StoreRuntime is what ChangeStore needs of a runtime.
type StoreRuntime interface {
	run.Archive
	run.Locker
	run.Applier
}

// ChangeStore changes only the PKI in its store. It takes the lock of the runtime, for which it creates at most the
// namespace, and refuses authorities that are not the installation's. Without a runtime nothing is applied from here,
// and the store alone keeps concurrent changes apart.
func ChangeStore(
	ctx context.Context, t *topology.Topology, rt StoreRuntime, store pki.Store,
	change func(*pki.State) (*pki.State, error),
) error {
	return changeLocked(ctx, t, rt, store, change, func(known *record.Record, s *pki.State) error {
		if err := known.CheckRestored(); err != nil {
			return err
		}
		return known.CheckAuthorities(s, store.String())
	})
}

// ReplaceInStore is ChangeStore, but accepts authorities that are not the installation's. It refuses to replace the key
// that encrypts data: the store may have the only copy.
func ReplaceInStore(
	ctx context.Context, t *topology.Topology, rt StoreRuntime, store pki.Store,
	change func(*pki.State) (*pki.State, error),
) error {
	return changeLocked(ctx, t, rt, store, change, func(known *record.Record, s *pki.State) error {
		return known.CheckEncryption(s, store.String())
	})
}

func changeLocked(
	ctx context.Context, t *topology.Topology, rt StoreRuntime, store pki.Store, change pkiChange,
	accept func(*record.Record, *pki.State) error,
) error {
	if rt == nil {
		return changeStore(ctx, t, store, change, func(*pki.State) error { return nil })
	}
	locked := func(ctx context.Context) error {
		known, err := rt.Record(ctx)
		if err != nil {
			return err
		}
		return changeStore(ctx, t, store, change, func(s *pki.State) error { return accept(known, s) })
	}
	return run.Locked(ctx, rt, locked, func(ctx context.Context) error {
		if err := applyHome(ctx, t, rt); err != nil {
			return err
		}
		return run.Locked(ctx, rt, locked, nil)
	})
}

// changeStore loads, changes, checks and saves a PKI.
func changeStore(
	ctx context.Context, t *topology.Topology, store pki.Store, change pkiChange, check func(*pki.State) error,
) error {
	state, err := store.Load(ctx)
	if err != nil {
		return err
	}
	if state, err = change(state); err != nil {
		return err
	}
	if err := errors.Join(sameInstallation(t, state, store), check(state)); err != nil {
		return err
	}
	if err := store.Save(ctx, state); err != nil {
		return fmt.Errorf("save %s: %w", store, err)
	}
	return nil
}

// applyHome creates the namespace that the setup's state lives in.
func applyHome(ctx context.Context, t *topology.Topology, rt run.Applier) error {
	o, err := render.Namespace(t, t.Home)
	if err != nil {
		return err
	}
	return rt.Apply(ctx, []plan.Item{{
		Ref: o.Ref(), Component: o.Component, Action: plan.Create, Want: o.Unstructured,
	}}, run.PlanOptions{})
}

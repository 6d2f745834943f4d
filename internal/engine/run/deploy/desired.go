package deploy

import (
	"context"
	"fmt"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Desired is the desired state of a setup: its PKI, complete and verified, and the objects that are rendered with it.
// Every command that needs objects gets them from here, so that each refuses the same certificates.
type Desired struct {
	// Loaded is the PKI as the store has it, PKI what was made of it. Nothing is saved yet.
	Loaded *pki.State
	PKI    *pki.Result

	// recovered means that the PKI has something that the store has lost.
	recovered bool
	topology  *topology.Topology
	store     pki.Store
	// now is the time for which the connections are proven, and proven is set once they are.
	now    time.Time
	proven bool
}

// DesiredOptions are the options of LoadDesired.
type DesiredOptions struct {
	Now time.Time
	// Renew reports which certificates to reissue although they fit. Nil is none.
	Renew func(pki.Cert) bool
	// Replace creates authorities that are lost, and replaces those that have expired, or whose private keys are lost.
	Replace bool
	// Offline means that no cluster was asked for the addresses that it assigns.
	Offline bool

	// identity is the identity of the installation, for a PKI that has lost its own.
	identity pki.Installation
	// recover adds to a PKI that was loaded what it has lost, and what runs still has. Nil adds nothing.
	recover pkiChange
	// accept refuses a PKI that was loaded and recovered.
	accept func(loaded *pki.State) error
	// lost returns the authorities whose private keys are lost. Nil: it is not known.
	lost func(loaded *pki.State) []topology.CA
	// change changes the PKI before missing certificates are issued: a step of a rotation.
	change pkiChange
	// pending accepts addresses that are not assigned yet. The result must not be applied.
	pending bool
}

// pkiChange changes a PKI. It leaves the state that it is given as it is.
type pkiChange func(*pki.State) (*pki.State, error)

// LoadDesired loads the setup's PKI from its store, and issues in memory what is missing or due. Before the result is
// rendered or saved, it verifies offline that every client and server of the setup accept each other. Without a store
// the PKI exists in memory only. It fails with a LoadError if the store cannot be read.
func LoadDesired(ctx context.Context, t *topology.Topology, store pki.Store, o DesiredOptions) (*Desired, error) {
	if err := requireAddresses(t, o.Offline); err != nil && !o.pending {
		return nil, err
	}
	d := &Desired{Loaded: &pki.State{}, topology: t, store: store, now: o.Now}
	var err error
	if store != nil {
		if d.Loaded, err = store.Load(ctx); err != nil {
			return nil, &LoadError{err}
		}
	}
	if err := sameInstallation(t, d.Loaded, store); err != nil {
		return nil, err
	}
	state := d.Loaded
	if o.recover != nil {
		if state, err = o.recover(state); err != nil {
			return nil, err
		}
		d.recovered = state != d.Loaded
	}
	if o.accept != nil {
		if err := o.accept(state); err != nil {
			return nil, err
		}
	}
	if o.change != nil {
		if state, err = o.change(state); err != nil {
			return nil, err
		}
	}
	ensure := pki.Options{Now: o.Now, Renew: o.Renew, Replace: o.Replace, Installation: o.identity}
	if o.lost != nil {
		ensure.Lost = o.lost(d.Loaded)
	}
	if d.PKI, err = pki.Ensure(t, state, ensure); err != nil {
		return nil, err
	}
	return d, nil
}

// LoadError is the error of a PKI that cannot be loaded from its store.
type LoadError struct{ error }

func (e *LoadError) Unwrap() error { return e.error }

// Objects renders the setup.
func (d *Desired) Objects() ([]render.Object, error) {
	return RenderAs(d, func(o render.Object) (render.Object, error) { return o, nil })
}

// RenderAs renders the setup, and returns what convert makes of each object.
func RenderAs[T any](d *Desired, convert func(render.Object) (T, error)) ([]T, error) {
	now := d.now
	if d.proven {
		now = time.Time{}
	}
	out, err := render.Proven(d.topology, d.PKI.State, now, convert)
	d.proven = d.proven || err == nil
	return out, err
}

// Save saves the PKI in the store that it was loaded from.
func (d *Desired) Save(ctx context.Context) error {
	if !d.proven {
		if err := render.Prove(d.topology, d.PKI.State, d.now); err != nil {
			return err
		}
		d.proven = true
	}
	if err := d.store.Save(ctx, d.PKI.State); err != nil {
		return fmt.Errorf("save %s: %w", d.store, err)
	}
	return nil
}

package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
)

func newCertsCmd(g *globalOptions) *cobra.Command {
	c := &cobra.Command{
		Use:   "certs",
		Short: "List, renew and rotate certificates, authorities and service-account keys",
		Args:  noArgs,
	}
	c.AddCommand(newCertsListCmd(g), newCertsCheckCmd(g), newCertsRenewCmd(g), newRotateCACmd(g), newRotateKeyCmd(g),
		newCertsExportCmd(g), newCertsImportCmd(g))
	return c
}

// openStore returns where the setup's PKI is kept. The runtime is nil where a folder keeps it; else the caller closes it.
func (s *session) openStore() (pki.Store, run.Runtime, error) {
	if st := s.directoryStore(); st != nil && !s.local {
		return st, nil, nil
	}
	rt, err := s.open()
	if err != nil {
		return nil, nil, err
	}
	return rt.Store(), rt, nil
}

// withState calls a function with the setup's PKI, which there is after the first up.
func (o *setupOptions) withState(ctx context.Context, do func(*session, pki.Store, *pki.State) error) error {
	s, err := o.load()
	if err != nil {
		return err
	}
	st, rt, err := s.openStore()
	if err != nil {
		return err
	}
	if rt != nil {
		defer rt.Close()
	}
	state, err := st.Load(ctx)
	if err != nil {
		return err
	}
	if len(state.CAs) == 0 {
		return o.noCertificates(s.Topology, st)
	}
	return do(s, st, state)
}

func (o *setupOptions) noCertificates(t *topology.Topology, st pki.Store) error {
	return clierr.New(clierr.Failed, "run kcpctl up"+o.flagsForTip()+" first", "kcp %q has no certificates yet: there is nothing in %s", t.Name, st)
}

// rollOptions are those of commands that change certificates and roll what uses them.
type rollOptions struct {
	setupOptions
	bringOptions
	offline bool
}

func (o *rollOptions) addRollFlags(c *cobra.Command) {
	f := c.Flags()
	o.addFlags(f)
	o.addBringFlags(c, 10*time.Minute, "everything is ready, each time")
	f.BoolVar(&o.offline, "offline", false, "change only what is in the folder of --pki-dir, to be applied with render or up")
}

func (o *rollOptions) validate() error {
	if o.offline && o.local {
		return clierr.New(clierr.BadInput, "leave out --offline", "what --local runs is on this machine: there is nothing to be offline from")
	}
	return checkTimeout(o.timeout)
}

// rollout changes the certificates of a setup, and rolls what uses them.
type rollout struct {
	*session
	options *rollOptions
	store   pki.Store
	// state is what the store had at the beginning.
	state *pki.State
	// rt is nil where only the store is changed.
	rt run.Runtime
}

// openRollout opens the store and, unless the run is offline, what runs the setup. The caller closes it.
func (o *rollOptions) openRollout(ctx context.Context) (*rollout, error) {
	s, err := o.load()
	if err != nil {
		return nil, err
	}
	r := &rollout{session: s, options: o}
	if o.offline {
		r.store = s.directoryStore()
		if r.store == nil {
			return nil, clierr.New(clierr.BadInput, "name it with --pki-dir, or with spec.pki.store Directory in the setup file",
				"--offline changes a folder that keeps the certificates, and there is none")
		}
	} else {
		if r.rt, err = s.open(); err != nil {
			return nil, err
		}
		r.store = r.rt.Store()
	}
	if r.state, err = r.store.Load(ctx); err == nil && len(r.state.CAs) == 0 {
		err = o.noCertificates(s.Topology, r.store)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rollout) close() {
	if r.rt != nil {
		r.rt.Close()
	}
}

// roll is a run of up that says what for.
func (r *rollout) roll(ctx context.Context, title string, o run.UpOptions) error {
	if r.rt == nil {
		return r.save(ctx, o)
	}
	r.keepHistory = true
	var err error
	if o.Unedited, err = setup.Marshal(r.File.Setup); err != nil {
		return err
	}
	_, err = r.bring(ctx, r.rt, title+"  ("+r.rt.Where()+")", r.options.bringOptions, o)
	if errors.Is(err, run.ErrUnapplied) {
		hint := fmt.Sprintf("run kcpctl up%s first, or revert them; kcpctl diff%[1]s shows them", r.options.flagsForTip())
		return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
	}
	return err
}

// keep changes the store and nothing else, not even certificates.
func (r *rollout) keep(ctx context.Context, change func(*pki.State) (*pki.State, error)) error {
	if r.rt == nil {
		return keep(ctx, r.store, change)
	}
	return run.ChangeStore(ctx, r.Topology, r.rt, change)
}

// save changes the store only.
func (r *rollout) save(ctx context.Context, o run.UpOptions) error {
	state, err := r.store.Load(ctx)
	if err != nil {
		return err
	}
	if o.Change != nil {
		if state, err = o.Change(state); err != nil {
			return err
		}
	}
	res, err := pki.Ensure(r.Topology, state, pki.Options{Now: r.Now(), Renew: o.Renew})
	if err != nil {
		return err
	}
	if err := pki.Prove(r.Topology, res.State, r.Now()); err != nil {
		return err
	}
	return r.store.Save(ctx, res.State)
}

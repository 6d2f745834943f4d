package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
	"github.com/kcpctl/kcpctl/internal/topology"
	"github.com/kcpctl/kcpctl/internal/ui"
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
	rt, err := s.open(s.note)
	if err != nil {
		return nil, nil, err
	}
	return rt.Store(), rt, nil
}

// withState calls a function with the setup's PKI, which is empty before the first up.
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
	return do(s, st, state)
}

func (o *setupOptions) noCertificates(t *topology.Topology, st pki.Store) error {
	return clierr.New(clierr.Failed, "run kcpctl up"+o.flagsForTip()+" first", "kcp %q has no certificates yet: there is nothing in %s", t.Name, st)
}

// rollOptions are those of commands that change certificates and roll what uses them.
type rollOptions struct {
	setupOptions
	timeout    time.Duration
	skipCanary bool
	offline    bool
	output     string
}

func (o *rollOptions) addRollFlags(f *pflag.FlagSet) {
	o.addFlags(f)
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to wait each time until everything is ready, 0 for ever")
	f.BoolVar(&o.skipCanary, "skip-canary", false, "do not create a workspace on each shard to prove that it serves")
	f.BoolVar(&o.offline, "offline", false, "change only what is in the folder of --pki-dir, to be applied with render or up")
	f.StringVarP(&o.output, "output", "o", "", "json: one event per line on stdout")
}

func (o *rollOptions) validate() error {
	switch {
	case o.output != "" && o.output != "json":
		return clierr.New(clierr.BadInput, "use -o json", "unknown output format %q", o.output)
	case o.timeout < 0:
		return clierr.New(clierr.BadInput, "use a duration such as 10m, or 0 to wait for ever", "negative timeout %s", o.timeout)
	case o.offline && o.local:
		return clierr.New(clierr.BadInput, "leave out --offline", "what --local runs is on this machine: there is nothing to be offline from")
	}
	return nil
}

// rollout changes the certificates of a setup, and rolls what uses them.
type rollout struct {
	*session
	options *rollOptions
	store   pki.Store
	// rt is nil where only the store is changed.
	rt run.Runtime
}

// openRollout opens the store and, unless the run is offline, what runs the setup. The caller closes it.
func (o *rollOptions) openRollout() (*rollout, error) {
	s, err := o.load()
	if err != nil {
		return nil, err
	}
	r := &rollout{session: s, options: o}
	if o.offline {
		if r.store = s.directoryStore(); r.store == nil {
			return nil, clierr.New(clierr.BadInput, "name it with --pki-dir, or with spec.pki.store Directory in the setup file",
				"--offline changes a folder that keeps the certificates, and there is none")
		}
		return r, nil
	}
	if r.rt, err = s.open(s.note); err != nil {
		return nil, err
	}
	r.store = r.rt.Store()
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
	remembered, err := setup.Marshal(r.File.Setup)
	if err != nil {
		return err
	}
	progress := ui.NewProgress(ctx, r.Streams, ui.ProgressOptions{
		Header: title + "  (" + r.rt.Where() + ")", JSON: r.options.output == "json", Now: r.Now,
	})
	defer progress.Close()
	o.Serial, o.SkipCanary, o.Timeout = true, r.options.skipCanary, r.options.timeout
	up := &run.Up{
		Topology: r.Topology, Runtime: r.rt, Setup: remembered, Observe: progress.Observe, Now: r.Now, Options: o,
		Preflight: r.preflight(r.rt),
	}
	res, err := up.Run(ctx)
	if err != nil && res != nil && res.Plan != nil && len(res.Plan.Conflicts) > 0 {
		ui.PrintConflicts(r.Streams.Err, res.Plan.Conflicts)
	}
	return err
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

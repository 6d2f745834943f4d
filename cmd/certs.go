package cmd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/setup"
)

func newCertsCmd(env *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "certs",
		Short: "Manage certificates, certificate authorities and service-account keys",
	}
	c.AddCommand(newCertsListCmd(env), newCertsCheckCmd(env), newCertsRenewCmd(env), newRotateCACmd(env), newRotateKeyCmd(env),
		newCertsExportCmd(env), newCertsImportCmd(env))
	return c
}

// openStore loads a setup and opens the store of its PKI. The caller closes the session.
func openStore(env *Env, flags *setupFlags) (*session, error) {
	s, err := loadSetup(env, flags)
	if err != nil {
		return nil, err
	}
	return s, s.connectStore()
}

// rolloutFlags are those of commands that change certificates and roll the components that use them.
type rolloutFlags struct {
	wait    waitFlags
	offline bool
}

func (f *rolloutFlags) add(c *cobra.Command) {
	f.wait.add(c, 10*time.Minute, "everything is ready, in each rollout")
	c.Flags().BoolVar(&f.offline, "offline", false, "change only the directory of the PKI; apply it later with render or up")
}

func (f *rolloutFlags) validate(flags *setupFlags) error {
	if f.offline && flags.local.enabled {
		return clierr.New(clierr.BadInput, "omit --offline", "--offline has no use with --local, which contacts no cluster")
	}
	return checkTimeout(f.wait.timeout)
}

// rollout changes the certificates of a setup, and rolls the components that use them.
type rollout struct {
	// session has a runtime unless only the store is to be changed.
	session *session
	flags   *rolloutFlags
	// state is the PKI before the change.
	state *pki.State
}

// openRollout loads a setup and its PKI and, unless the run is offline, connects. The caller closes it.
func openRollout(ctx context.Context, env *Env, flags *setupFlags, f *rolloutFlags) (*rollout, error) {
	s, err := loadSetup(env, flags)
	if err != nil {
		return nil, err
	}
	switch {
	case !f.offline:
		err = s.connect()
	case s.directory == nil:
		err = clierr.New(clierr.BadInput, "name it with --pki-dir, or set spec.pki.store to Directory in the setup file",
			"--offline requires a directory with the certificates")
	}
	if err != nil {
		return nil, err
	}
	state, err := s.loadPKI(ctx)
	if err != nil {
		s.close()
		return nil, err
	}
	return &rollout{session: s, flags: f, state: state}, nil
}

func (r *rollout) close() { r.session.close() }

// roll changes the PKI and rolls what uses it, under a title.
func (r *rollout) roll(ctx context.Context, title string, o run.UpOptions) error {
	s := r.session
	if s.runtime == nil {
		return r.changeDirectory(ctx, o)
	}
	var err error
	if o.Unedited, err = setup.Marshal(s.file.Setup); err != nil {
		return err
	}
	_, err = s.runUp(ctx, upRun{
		header: title + "  (" + s.runtime.Where() + ")", wait: r.flags.wait, options: o, keepHistory: true,
	})
	if errors.Is(err, run.ErrUnapplied) {
		hint := "run " + s.flags.command("up") + " first, or revert them; to see them, run " + s.flags.command("diff")
		return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
	}
	return err
}

// changeDirectory does in the directory of the PKI what a run would do: change, complete and verify it.
func (r *rollout) changeDirectory(ctx context.Context, o run.UpOptions) error {
	s := r.session
	return s.changeStore(ctx, func(state *pki.State) (*pki.State, error) {
		var err error
		if o.Change != nil {
			if state, err = o.Change(state); err != nil {
				return nil, err
			}
		}
		res, err := pki.Ensure(s.topology, state, pki.Options{Now: s.env.Now(), Renew: o.Renew})
		if err != nil {
			return nil, err
		}
		return res.State, pki.Prove(s.topology, res.State, s.env.Now())
	})
}

// changeStore changes the store of the PKI only: under the lock of the runtime, if there is one.
func (s *session) changeStore(ctx context.Context, change func(*pki.State) (*pki.State, error)) error {
	if s.runtime != nil {
		return run.ChangeStore(ctx, s.topology, s.runtime, change)
	}
	state, err := s.store().Load(ctx)
	if err != nil {
		return err
	}
	if state, err = change(state); err != nil {
		return err
	}
	return s.store().Save(ctx, state)
}

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
func openStore(ctx context.Context, env *Env, flags *setupFlags) (*session, error) {
	s, err := loadSetup(env, flags)
	if err != nil {
		return nil, err
	}
	return s, s.connectStore(ctx)
}

// rolloutFlags are those of commands that change certificates and roll the components that use them.
type rolloutFlags struct {
	wait    waitFlags
	offline bool
}

func (f *rolloutFlags) add(c *cobra.Command) {
	f.wait.add(c, 10*time.Minute, "everything is ready, in each rollout")
	f.wait.addParallel(c.Flags())
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
		err = s.connect(ctx)
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

// renew reissues certificates and rolls the components that use them, under a title. Offline it changes only the directory.
func (r *rollout) renew(ctx context.Context, title string, o run.UpOptions) error {
	s := r.session
	if s.runtime == nil {
		desired, err := run.LoadDesired(ctx, s.topology, s.directory, run.DesiredOptions{Now: s.env.Now(), Offline: true, Renew: o.Renew})
		if err != nil {
			return err
		}
		return desired.Save(ctx)
	}
	up, err := r.upRun(title, o)
	if err != nil {
		return err
	}
	_, err = s.runUp(ctx, up)
	return s.flags.explainUnapplied(err)
}

// upRun is a run that changes certificates only: it refuses pending edits of the setup file, and adds no revision.
func (r *rollout) upRun(title string, o run.UpOptions) (upRun, error) {
	var err error
	o.Unedited, err = setup.Marshal(r.session.file.Setup)
	return upRun{header: r.header(title), wait: r.flags.wait, options: o, keepHistory: true}, err
}

func (r *rollout) header(title string) string { return title + "  (" + r.session.runtime.Where() + ")" }

// explainUnapplied adds the flags of the command to the hint of a run that refuses pending edits.
func (f *setupFlags) explainUnapplied(err error) error {
	if !errors.Is(err, run.ErrUnapplied) {
		return err
	}
	hint := "run " + f.command("up") + " first, or revert them; to see them, run " + f.command("diff")
	return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
}

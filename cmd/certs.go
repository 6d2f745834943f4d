package cmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func newCertsCmd(env *Env) *cobra.Command {
	return newGroup("certs", "Manage certificates, certificate authorities and service-account keys",
		newCertsListCmd(env), newCertsCheckCmd(env), newCertsRenewCmd(env), newRotateCACmd(env),
		newRotateKeyCmd(env), newCertsExportCmd(env), newCertsImportCmd(env))
}

// openStore loads a setup and opens the store of its PKI. The caller closes the session.
func openStore(ctx context.Context, env *Env, flags *setupFlags) (*session, error) {
	s, err := loadSetup(env, flags)
	if err != nil {
		return nil, err
	}
	return s, s.connectStore(ctx)
}

// rolloutFlags are the flags of commands that change certificates and roll the components that use them.
type rolloutFlags struct {
	applyFlags
	offline bool
	// applied uses the setup that was applied last, instead of the setup file.
	applied bool
}

func (f *rolloutFlags) add(c *cobra.Command) {
	f.addOnline(c)
	c.Flags().BoolVar(&f.offline, "offline", false,
		"change only the directory of the PKI; apply it later with render or up")
	excludeFlag(c.Flags(), "local", "offline")
	excludeFlag(c.Flags(), "offline", "parallel", "timeout", "skip-canary", "force-conflicts") // nothing rolls
}

// addOnline adds the flags of a command that needs a running kcp.
func (f *rolloutFlags) addOnline(c *cobra.Command) {
	f.applyFlags.add(c, "everything is ready, in each rollout", "what would be replaced")
	f.wait.addParallel(c.Flags())
}

func (f *rolloutFlags) validate() error {
	return f.validateDryRun()
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
	return rolloutOf(ctx, s, f)
}

// rolloutOf loads the PKI of a session and, unless the run is offline, connects.
func rolloutOf(ctx context.Context, s *session, f *rolloutFlags) (*rollout, error) {
	var err error
	switch {
	case !f.offline:
		err = s.connect(ctx)
	case s.directory == nil:
		err = clierr.New(clierr.BadInput,
			"name it with --pki-dir, or set spec.pki.store to Directory in the setup file",
			"--offline requires a directory with the certificates")
	}
	if err == nil && f.applied {
		s, err = s.asApplied(ctx)
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

// asApplied returns a session with the setup that was applied last, which is connected. It closes the one before.
func (s *session) asApplied(ctx context.Context) (*session, error) {
	defer s.close()
	history, err := s.runtime.History(ctx)
	if err != nil {
		return nil, err
	}
	text, _ := plan.Latest(history)
	if text == nil {
		return nil, clierr.New(clierr.Failed, "run "+s.flags.command("up")+" first",
			"no setup of kcp %q was applied completely to %s", s.topology.Name, s.runtime.Where())
	}
	f, err := setup.Parse("the setup that was applied last", text)
	if err != nil {
		return nil, clierr.Also(err, "another release of kcpctl has applied it: correct the setup file, and run "+
			s.flags.command("up"))
	}
	next, err := s.with(f)
	if err != nil {
		return nil, err
	}
	return next, next.connect(ctx)
}

func (r *rollout) close() { r.session.close() }

// renew reissues certificates and rolls the components that use them, under a title. Offline it changes only the
// directory.
func (r *rollout) renew(ctx context.Context, title string, o deploy.UpOptions) error {
	s := r.session
	if s.runtime == nil {
		desired, err := deploy.LoadDesired(ctx, s.topology, s.directory,
			deploy.DesiredOptions{Now: s.env.Now(), Offline: true, Renew: o.Renew})
		if err != nil || r.flags.dry() {
			return err
		}
		return desired.Save(ctx)
	}
	up, err := r.upRun(title, o)
	if err != nil {
		return err
	}
	if r.flags.dry() {
		err = up.preview(ctx, s)
	} else {
		_, err = up.run(ctx, s)
	}
	return s.flags.explainUnapplied(err)
}

// upRun is a run that changes certificates only: it refuses pending edits of the setup file, and adds no revision.
func (r *rollout) upRun(title string, o deploy.UpOptions) (upRun, error) {
	var err error
	o.Force = r.flags.forceConflicts
	o.Unedited, err = setup.Marshal(r.session.file.Setup)
	return upRun{header: r.header(title), wait: r.flags.wait, options: o, keepHistory: true}, err
}

func (r *rollout) header(title string) string { return title + "  (" + r.session.runtime.Where() + ")" }

// explainUnapplied adds the flags of the command to the hint of a run that refuses pending edits, or what the last up
// has left.
func (f *setupFlags) explainUnapplied(err error) error {
	hint := ""
	switch {
	case errors.Is(err, deploy.ErrUnfinished):
		hint = "run " + f.command("up") + " first: it completes what is left"
	case errors.Is(err, deploy.ErrUnapplied):
		hint = "run " + f.command("up") + " first, or revert them; to see them, run " + f.command("diff")
	default:
		return err
	}
	return &clierr.Error{Err: err, Code: clierr.Code(err), Hint: hint}
}

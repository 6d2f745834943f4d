package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

// rotateOptions are the options of the commands that rotate.
type rotateOptions struct {
	env     *Env
	setup   setupFlags
	rollout rolloutFlags
	pause   bool
	finish  bool
	yes     bool
}

func (o *rotateOptions) addRotateFlags(c *cobra.Command) {
	o.setup.addStarting(c.Flags())
	o.rollout.add(c)
	c.Flags().BoolVar(&o.pause, "pause", false, "stop when the new one is trusted; the same command continues")
	addYes(c.Flags(), &o.yes)
}

type rotateCAOptions struct {
	rotateOptions
	cas []topology.CA
	// from is a directory with the new authorities.
	from string
	// cancel ends rotations before the new authorities sign.
	cancel bool
}

func newRotateCACmd(env *Env) *cobra.Command {
	o := &rotateCAOptions{rotateOptions: rotateOptions{env: env}}
	names := mapped(topology.CAs, func(ca topology.CA) string { return string(ca) })
	c := &cobra.Command{
		Use:   "rotate-ca CA...",
		Short: "Replace certificate authorities while kcp serves",
		Long: `Replace certificate authorities (` + strings.Join(names,
			", ") + `) in two phases. A setup can stay
in each of them for any time. Several authorities go through the phases together, so that components roll only once:

  distribute  all components trust the new authority; the current one still signs
  switch      the new authority signs, and all certificates are reissued; the previous one is still trusted

Existing kubeconfigs keep working until --finish removes the previous authority; the command lists them before. In the
phase distribute, --cancel ends the rotation: the new authority, which has signed nothing, is no longer trusted. In each
phase the components that change are rolled, one after another. Agents and the controller of workloads are
not rolled: they read their files again, and --finish waits until they have done so. After an interruption the same command continues.`,
		Example: `  kcpctl certs rotate-ca server
  kcpctl certs rotate-ca server client requestheader
  kcpctl certs rotate-ca server --finish`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args, names); err != nil {
				return err
			}
			return o.run(c.Context())
		},
		ValidArgsFunction: completeArgs(0, fixed(names...)),
	}
	o.addRotateFlags(c)
	c.Flags().BoolVar(&o.finish, "finish", false,
		"remove the previous authority: certificates that it signed are no longer accepted")
	c.Flags().BoolVar(&o.cancel, "cancel", false,
		"in the phase distribute: keep the current authority, and no longer trust the next one")
	c.Flags().StringVar(&o.from, "from", "",
		"directory with the new authority, as written by export (default: a new one is created)")
	excludeFlag(c.Flags(), "cancel", "finish", "from", "pause")
	excludeFlag(c.Flags(), "finish", "from", "pause")
	return c
}

// complete takes the authorities from the arguments.
func (o *rotateCAOptions) complete(args, names []string) error {
	if len(args) == 0 {
		return clierr.New(clierr.BadInput, oneOf(names), "name the certificate authorities to replace")
	}
	for _, a := range args {
		ca := topology.CA(a)
		switch {
		case !slices.Contains(names, a):
			return clierr.New(clierr.BadInput, oneOf(names), "there is no certificate authority %q", a)
		case !slices.Contains(o.cas, ca):
			o.cas = append(o.cas, ca)
		}
	}
	return nil
}

func (o *rotateCAOptions) run(ctx context.Context) error {
	rotations, err := o.rotations(ctx)
	if err != nil {
		return err
	}
	if o.rollout.inClient() || o.rollout.dry() && o.rollout.offline {
		return o.printClient(rotations)
	}
	r, rotate, err := o.openRotation(ctx, rotations)
	if err != nil {
		return err
	}
	defer r.close()
	cas := &deploy.RotateCAs{Rotate: rotate}
	if o.finish {
		removed := slices.Concat(rotations.In(r.state, pki.PhaseDistribute), rotations.In(r.state, pki.PhaseSwitch))
		var warning []string
		if len(removed) > 0 {
			first := fmt.Sprintf("Certificates signed by the previous %s stop working.", removed)
			warning = append([]string{first}, affected(removed, r.session.topology)...)
		}
		err := o.runFinish(ctx, r.session, rotations, warning, cas)
		if err == nil && !o.rollout.dry() {
			o.refreshMerged(ctx, r)
		}
		return err
	}
	if o.cancel {
		return o.runCancel(ctx, r, cas)
	}
	phase, err := cas.Run(ctx)
	if err != nil {
		return o.explain(err)
	}
	if o.rollout.dry() {
		return nil
	}
	o.refreshMerged(ctx, r)
	if o.rollout.wait.output == outputJSON {
		return nil
	}
	if phase == pki.PhaseDistribute {
		o.tellPause(rotations, cas.Stops(r.state))
		return nil
	}
	w := o.env.Streams.Err
	fmt.Fprintf(w, "\nThe new %s signs. The previous one is still trusted, until %s --finish.\n", rotations,
		o.command(rotations))
	for _, line := range affected(rotations, r.session.topology) {
		fmt.Fprintln(w, line)
	}
	return nil
}

// runCancel ends rotations before the new authorities sign.
func (o *rotateCAOptions) runCancel(ctx context.Context, r *rollout, cas *deploy.RotateCAs) error {
	canceled, err := cas.Cancel(ctx)
	if err != nil {
		return o.explain(err)
	}
	if o.rollout.dry() {
		return nil
	}
	o.refreshMerged(ctx, r)
	switch {
	case o.rollout.wait.output == outputJSON:
	case len(canceled) == 0:
		fmt.Fprintf(o.env.Streams.Err, "The %s is not being rotated: nothing is canceled.\n", cas.Rotations)
	default:
		fmt.Fprintf(o.env.Streams.Err, "\nThe rotation of the %s is canceled: the next one is no longer trusted.\n",
			canceled)
	}
	return nil
}

// rotations are the rotations of the authorities: to user-supplied ones, or to new ones.
func (o *rotateCAOptions) rotations(ctx context.Context) (pki.Rotations, error) {
	var supplied *pki.State
	if o.from != "" {
		var err error
		if supplied, err = pki.DirectoryStore(o.from).Load(ctx); err != nil {
			return nil, err
		}
	}
	var out pki.Rotations
	for _, ca := range o.cas {
		r := pki.RotationOf(ca)
		if supplied != nil {
			if _, ok := supplied.CAs[ca]; !ok {
				return nil, clierr.New(clierr.BadInput, "see kcpctl certs import --help for the files",
					"%s holds no %s", o.from, r)
			}
			var err error
			if r, err = r.To(supplied, o.env.Now()); err != nil {
				return nil, err
			}
		}
		out = append(out, r)
	}
	return out, nil
}

type rotateKeyOptions struct{ rotateOptions }

func newRotateKeyCmd(env *Env) *cobra.Command {
	o := &rotateKeyOptions{rotateOptions{env: env}}
	c := &cobra.Command{
		Use:   "rotate-service-account-key",
		Short: "Replace the key that signs the tokens of service accounts",
		Long: `Distribute the public part of a new key to all shards, and then sign with the key. Earlier
keys still verify the tokens that they signed, until --finish removes them. After an interruption the same command continues.`,
		Example: `  kcpctl certs rotate-service-account-key
  kcpctl certs rotate-service-account-key --finish`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	o.addRotateFlags(c)
	c.Flags().BoolVar(&o.finish, "finish", false, "remove earlier keys: tokens that they signed are no longer accepted")
	excludeFlag(c.Flags(), "finish", "pause")
	return c
}

func (o *rotateKeyOptions) run(ctx context.Context) error {
	rotations := pki.Rotations{pki.KeyRotation{}}
	if o.rollout.inClient() || o.rollout.dry() && o.rollout.offline {
		return o.printClient(rotations)
	}
	r, rotate, err := o.openRotation(ctx, rotations)
	if err != nil {
		return err
	}
	defer r.close()
	key := &deploy.RotateKey{Rotate: rotate}
	if o.finish {
		n, err := pki.EarlierKeys(r.state)
		if err != nil {
			return err
		}
		var warning []string
		if n > 0 {
			warning = []string{
				fmt.Sprintf("Service-account tokens signed by %s will stop working.",
					gather.Count(n, "earlier key", "earlier keys")),
				"kcpctl cannot list their holders: tokens that pods and controllers request expire " +
					"within hours, those in",
				"Secrets of workspaces never do.",
			}
		}
		return o.runFinish(ctx, r.session, rotations, warning, key)
	}
	phase, err := key.Run(ctx)
	switch {
	case err != nil:
		return o.explain(err)
	case o.rollout.wait.output == outputJSON, o.rollout.dry():
	case phase == pki.PhaseDistribute:
		o.tellPause(rotations, nil)
	default:
		fmt.Fprintf(o.env.Streams.Err,
			"\nThe new %s signs. Earlier ones still verify the tokens that they signed, until %s --finish.\n",
			rotations, o.command(rotations))
	}
	return nil
}

// printClient prints what a rotation replaces. It contacts no cluster.
func (o *rotateOptions) printClient(rotations pki.Rotations) error {
	s, err := loadSetup(o.env, &o.setup)
	if err != nil {
		return err
	}
	for _, r := range rotations {
		s.env.print(fmt.Sprintf("%s of kcp %q (client dry run)\n", r, s.topology.Name))
	}
	return nil
}

// openRotation opens the store and, unless the run is offline, what runs the setup. The caller closes the rollout.
func (o *rotateOptions) openRotation(ctx context.Context, rotations pki.Rotations) (*rollout, deploy.Rotate, error) {
	rotate := deploy.Rotate{Rotations: rotations, Now: o.env.Now, Pause: o.pause}
	if err := o.rollout.validate(); err != nil {
		return nil, rotate, err
	}
	r, err := openRollout(ctx, o.env, &o.setup, &o.rollout)
	if err != nil {
		return nil, rotate, err
	}
	s := r.session
	if o.rollout.dry() {
		rotate.Show = s.env.printPlan
	}
	rotate.Topology, rotate.Store = s.topology, s.store()
	if s.runtime == nil {
		rotate.Pause = true // the user applies the output: one phase at a time
		return r, rotate, nil
	}
	up, err := r.upRun("", deploy.UpOptions{})
	if err == nil {
		rotate.Up, err = up.of(s)
	}
	if err != nil {
		r.close()
		return nil, rotate, err
	}
	rotate.Begin = func(title string) func() { return s.reporter.begin(ctx, r.header(title)) }
	return r, rotate, nil
}

// explain shows conflicts, and adds how to continue to an error without a hint: it is safe to pause in every phase.
func (o *rotateOptions) explain(err error) error {
	err = o.setup.explainUnapplied(err)
	if conflict, ok := errors.AsType[*deploy.ConflictError](err); ok && o.rollout.wait.output != outputJSON {
		ui.PrintConflicts(o.env.Streams.Err, conflict.Conflicts)
	}
	if err == nil || clierr.Hint(err) != "" {
		return err
	}
	return clierr.New(clierr.Code(err), "rerun the command: it continues; kcp keeps serving in the meantime",
		"%w", err)
}

// tellPause says how to continue after the first phase. stops is why the run had to end there, if it had to.
func (o *rotateOptions) tellPause(rotations pki.Rotations, stops error) {
	w := o.env.Streams.Err
	fmt.Fprintf(w, "\nThe new %s is trusted; the current one still signs. Continue with %s", rotations,
		o.command(rotations))
	if o.rollout.offline {
		fmt.Fprint(w, "\nonce this is applied and all components have rolled")
	}
	fmt.Fprintln(w, ".")
	if stops != nil {
		fmt.Fprintf(w, "Before that, replace all existing kubeconfigs: the switch cuts them off, because the current authority cannot\n"+
			"certify the new one: %v.\n", stops)
	}
}

func (o *rotateOptions) command(rotations pki.Rotations) string {
	c := o.setup.rotateCommand(rotations)
	if o.rollout.offline {
		c += " --offline"
	}
	return c
}

func (f *setupFlags) rotateCommand(all pki.Rotations) string {
	if all.OfEncryption() {
		return f.command("encryption rotate")
	}
	name := "rotate-service-account-key"
	if !all.OfServiceAccount() {
		name = "rotate-ca"
		for _, r := range all {
			name += " " + strings.TrimSuffix(r.Key(), "-ca")
		}
	}
	return f.command("certs " + name)
}

func phaseMeaning(all pki.Rotations, p pki.Phase) string {
	switch {
	case all.OfEncryption() && p == pki.PhaseSwitch:
		return "existing objects are written again"
	case all.OfEncryption():
		return "shards can decrypt with the next one"
	case p == pki.PhaseSwitch:
		return "the new one signs, the previous one is trusted"
	}
	return "the next one is trusted, the current one signs"
}

// finisher ends rotations.
type finisher interface {
	// MayFinish fails if they cannot end yet. It writes nothing.
	MayFinish(ctx context.Context) error
	Finish(ctx context.Context) error
}

// runFinish warns, asks, and finishes rotations. Without a warning nothing is removed.
func (o *rotateOptions) runFinish(ctx context.Context, s *session, rotations pki.Rotations, warning []string,
	of finisher) error {
	if err := of.MayFinish(ctx); err != nil {
		return o.explain(err)
	}
	if warning == nil {
		fmt.Fprintf(o.env.Streams.Err, "The %s is not being rotated: nothing is removed.\n", rotations)
		return o.explain(of.Finish(ctx))
	}
	for _, line := range warning {
		fmt.Fprintln(o.env.Streams.Err, line)
	}
	yes, err := removal{
		removalFlags: &removalFlags{dryRunFlags: o.rollout.dryRunFlags, yes: o.yes}, session: s,
		question: fmt.Sprintf("Remove the previous %s?", rotations), preview: of.Finish,
	}.confirmed(ctx)
	if err != nil || !yes {
		return o.explain(err)
	}
	if err := of.Finish(ctx); err != nil {
		return o.explain(err)
	}
	if o.rollout.wait.output != outputJSON {
		fmt.Fprintf(o.env.Streams.Err, "\nThe previous %s is removed.\n", rotations)
	}
	return nil
}

// affected lists what depends on previous authorities outside the setup.
func affected(all pki.Rotations, t *topology.Topology) []string {
	if !all.Has(topology.ServerCA) && !all.Has(topology.ClientCA) {
		return []string{"No kubeconfig depends on it: only components of the setup do, and they use the " +
			"new one already."}
	}
	since := "the switch, because the previous client CA signed their certificates:"
	if all.Has(topology.ServerCA) {
		since = "the rotation began, because they trust only the previous server CA:"
	}
	names := namesOf(t.OfKind(topology.Kubeconfig))
	declared := "no kubeconfig is declared"
	if len(names) > 0 {
		declared = "copies of the declared kubeconfigs " + strings.Join(names,
			", ") + " (get new ones with kcpctl kubeconfig NAME)"
	}
	return []string{
		"Affected are kubeconfigs that were issued before " + since,
		"  - " + declared,
		"  - all kubeconfigs of kcpctl kubeconfig --user: kcpctl keeps no list of them",
	}
}

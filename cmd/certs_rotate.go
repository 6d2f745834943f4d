package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type rotateOptions struct {
	env       *Env
	setup     setupFlags
	rollout   rolloutFlags
	rotations pki.Rotations
	pause     bool
	finish    bool
	yes       bool
	// from is a folder with the new authority.
	from string
}

func newRotateCACmd(env *Env) *cobra.Command {
	o := &rotateOptions{env: env}
	var names []string
	for _, ca := range pki.CAs() {
		names = append(names, string(ca))
	}
	c := &cobra.Command{
		Use:   "rotate-ca CA...",
		Short: "Replace certificate authorities while kcp serves",
		Long: `Rotate-ca replaces authorities (` + strings.Join(names, ", ") + `) in two phases, in each of which a setup can stay
for as long as it likes. Several go through them together, so that everything rolls once for all of them:

  distribute  everybody learns to trust the new authority; the present one signs
  switch      the new authority signs, and everybody gets what it signed; the previous one is still trusted

Kubeconfigs that were handed out earlier go on to work, until --finish drops the previous authority. Before it does, the
command says which they are. In each phase what is changed rolls, one component after another. An interrupted run is
continued by the same command.`,
		Example: `  kcpctl certs rotate-ca server
  kcpctl certs rotate-ca server client requestheader
  kcpctl certs rotate-ca server --finish`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args, names); err != nil {
				return err
			}
			if err := o.loadFrom(c.Context()); err != nil {
				return err
			}
			return o.run(c.Context())
		},
		ValidArgsFunction: completeArgs(0, fixed(names...)),
	}
	o.addRotateFlags(c)
	c.Flags().BoolVar(&o.finish, "finish", false, "drop the previous authority: what it signed is not accepted any more")
	c.Flags().StringVar(&o.from, "from", "", "folder with the new authority, as export writes it, in place of one that is made")
	return c
}

func newRotateKeyCmd(env *Env) *cobra.Command {
	o := &rotateOptions{env: env, rotations: pki.Rotations{pki.RotationOfServiceAccount()}}
	c := &cobra.Command{
		Use:   "rotate-service-account-key",
		Short: "Replace the key that signs the tokens of service accounts",
		Long: `Rotate-service-account-key lets all shards know the public part of a new key first, and then sign with it. Earlier keys go
on to verify the tokens that they signed, until --finish drops them. An interrupted run is continued by the same command.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addRotateFlags(c)
	c.Flags().BoolVar(&o.finish, "finish", false, "drop earlier keys: tokens that they signed are not accepted any more")
	return c
}

func (o *rotateOptions) addRotateFlags(c *cobra.Command) {
	o.setup.add(c.Flags())
	o.rollout.add(c)
	c.Flags().BoolVar(&o.pause, "pause", false, "stop when the new one is trusted; the same command goes on")
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "with --finish: do not ask")
}

// complete takes the authorities from the arguments.
func (o *rotateOptions) complete(args, names []string) error {
	if len(args) == 0 {
		return clierr.New(clierr.BadInput, oneOf(names), "name the certificate authorities to replace")
	}
	for _, a := range args {
		ca := pki.CA(a)
		switch {
		case !slices.Contains(names, a):
			return clierr.New(clierr.BadInput, oneOf(names), "there is no certificate authority %q", a)
		case !o.rotations.Has(ca):
			o.rotations = append(o.rotations, pki.RotationOf(ca))
		}
	}
	return nil
}

// loadFrom reads the new authorities from the directory of --from.
func (o *rotateOptions) loadFrom(ctx context.Context) error {
	if o.from == "" {
		return nil
	}
	brought, err := pki.DirectoryStore(o.from).Load(ctx)
	if err != nil {
		return err
	}
	for i, r := range o.rotations {
		if _, ok := brought.CAs[r.CA()]; !ok {
			return clierr.New(clierr.BadInput, "see kcpctl certs import --help for the files", "%s holds no %s", o.from, r)
		}
		if o.rotations[i], err = r.To(brought, o.env.Now()); err != nil {
			return err
		}
	}
	return nil
}

func (o *rotateOptions) run(ctx context.Context) error {
	if err := o.rollout.validate(&o.setup); err != nil {
		return err
	}
	r, err := openRollout(ctx, o.env, &o.setup, &o.rollout)
	if err != nil {
		return err
	}
	defer r.close()
	rotate := &run.Rotate{
		Rotations: o.rotations, Topology: r.session.topology, Store: r.session.store(), Keep: r.session.changeStore, Now: o.env.Now,
		// What is rendered here is applied by others: one phase at a time.
		Pause: o.pause || o.rollout.offline,
		Roll: func(ctx context.Context, title string, change func(*pki.State) (*pki.State, error)) error {
			return r.roll(ctx, title, run.UpOptions{Change: change})
		},
	}
	if o.finish {
		return o.runFinish(ctx, rotate, r.state)
	}
	phase, err := rotate.Run(ctx)
	if err == nil {
		o.tell(rotate, r.state, phase)
	}
	return o.explain(err)
}

// explain says how to go on after a failure: every phase is safe to stay in.
func (o *rotateOptions) explain(err error) error {
	if err == nil || clierr.Hint(err) != "" {
		return err
	}
	return clierr.New(clierr.Code(err), "run the same command again: it continues; kcp serves in the meantime", "%w", err)
}

// tell says where a run has ended, and what comes next. The state is that from before it.
func (o *rotateOptions) tell(r *run.Rotate, before *pki.State, phase pki.Phase) {
	if o.rollout.wait.output == outputJSON {
		return
	}
	w, command := o.env.Streams.Err, o.command()
	switch phase {
	case pki.PhaseNone:
		fmt.Fprintf(w, "\nThe new %s signs. Earlier ones verify what they signed, until %s --finish.\n", r, command)
	case pki.PhaseDistribute:
		fmt.Fprintf(w, "\nA new %s is there to be trusted; the present one signs. Go on with %s", r, command)
		if o.rollout.offline {
			fmt.Fprint(w, "\nonce this is applied and everything has rolled")
		}
		fmt.Fprintln(w, ".")
		if err := r.Stops(before); err != nil {
			fmt.Fprintf(w, "Before you do, replace the kubeconfigs that were handed out: with the switch they stop working, because the present\n"+
				"authority cannot vouch for the new one: %v.\n", err)
		}
	case pki.PhaseSwitch:
		fmt.Fprintf(w, "\nThe new %s signs; the previous one is still trusted, until %s --finish.\n", r, command)
		for _, line := range affected(r.Rotations, r.Topology) {
			fmt.Fprintln(w, line)
		}
	}
}

// command is how to run it again.
func (o *rotateOptions) command() string { return o.setup.rotateCommand(o.rotations) }

// rotateCommand is the command that goes on with rotations.
func (f *setupFlags) rotateCommand(all pki.Rotations) string {
	name := "rotate-service-account-key"
	if !all.OfServiceAccount() {
		name = "rotate-ca"
		for _, r := range all {
			name += " " + string(r.CA())
		}
	}
	return f.command("certs " + name)
}

// phaseMeaning explains a phase of a rotation.
func phaseMeaning(p pki.Phase) string {
	if p == pki.PhaseSwitch {
		return "the new one signs, the previous one is trusted"
	}
	return "the next one is trusted, the present one signs"
}

func (o *rotateOptions) runFinish(ctx context.Context, r *run.Rotate, state *pki.State) error {
	warning, err := o.warning(r, state)
	if err != nil {
		return err
	}
	if warning == nil {
		fmt.Fprintf(o.env.Streams.Err, "The %s is not being rotated: nothing is dropped.\n", r)
		return o.explain(r.Finish(ctx))
	}
	for _, line := range warning {
		fmt.Fprintln(o.env.Streams.Err, line)
	}
	if !o.yes {
		yes, err := o.env.Streams.Confirm(ctx, fmt.Sprintf("Drop the previous %s?", r))
		if err != nil || !yes {
			return err
		}
	}
	if err := r.Finish(ctx); err != nil {
		return o.explain(err)
	}
	if o.rollout.wait.output != outputJSON {
		fmt.Fprintf(o.env.Streams.Err, "\nThe previous %s is gone.\n", r)
	}
	return nil
}

// warning says what a finish cuts off; nothing if there is nothing to drop.
func (o *rotateOptions) warning(r *run.Rotate, s *pki.State) ([]string, error) {
	if r.OfServiceAccount() {
		n, err := pki.EarlierKeys(s)
		if err != nil || n == 0 {
			return nil, err
		}
		return []string{fmt.Sprintf("Tokens of service accounts stop working that %s signed. kcpctl does not know who has some: those that\n"+
			"pods and controllers request expire by themselves within hours, those in Secrets of workspaces never do.", plural(n, "earlier key", "earlier keys"))}, nil
	}
	dropped := slices.Concat(r.In(s, pki.PhaseDistribute), r.In(s, pki.PhaseSwitch))
	if len(dropped) == 0 {
		return nil, nil
	}
	return append([]string{fmt.Sprintf("What the previous %s signed stops working.", dropped)}, affected(dropped, r.Topology)...), nil
}

// affected says who outside the setup depends on previous authorities.
func affected(all pki.Rotations, t *topology.Topology) []string {
	if !all.Has(pki.ServerCA) && !all.Has(pki.ClientCA) {
		return []string{"No kubeconfig depends on it: only components of the setup do, and they have what is new."}
	}
	since := "the switch, because the previous client CA signed their certificates:"
	if all.Has(pki.ServerCA) {
		since = "the rotation began, because they trust only the previous server CA:"
	}
	var names []string
	for _, c := range t.OfKind(topology.Kubeconfig) {
		names = append(names, c.Name)
	}
	declared := "no kubeconfig is declared"
	if len(names) > 0 {
		declared = "copies of the declared kubeconfigs " + strings.Join(names, ", ") + " (get new ones with kcpctl kubeconfig NAME)"
	}
	return []string{
		"Affected are kubeconfigs that were handed out before " + since,
		"  - " + declared,
		"  - all that kcpctl kubeconfig --user minted by then: nothing keeps a list of them",
	}
}

package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
)

func newEncryptionCmd(env *Env) *cobra.Command {
	return newGroup("encryption", "Manage the encryption of objects in etcd",
		newRotateEncryptionCmd(env))
}

type rotateEncryptionOptions struct{ rotateOptions }

func newRotateEncryptionCmd(env *Env) *cobra.Command {
	o := &rotateEncryptionOptions{rotateOptions{env: env}}
	c := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the key that encrypts objects in etcd",
		Long: `Distribute a new key to all shards, encrypt with it, write all existing objects again, and remove the
previous key, while kcp serves. Components are rolled one after another in each of these steps.

In a setup that runs, the command also brings a change of spec.encryption into effect, after kcpctl up: it encrypts
the existing objects of the resources, or stores them without encryption again. After an interruption the same
command continues. Until it has ended, workspaces cannot move to other shards.`,
		Example: "  kcpctl encryption rotate",
		Args:    noArgs,
		RunE:    withoutArgs(o.run),
	}
	o.setup.addStarting(c.Flags())
	o.rollout.addOnline(c)
	return c
}

func (o *rotateEncryptionOptions) run(ctx context.Context) error {
	rotations := pki.Rotations{pki.EncryptionRotation{}}
	if o.rollout.inClient() {
		return o.printClient(rotations)
	}
	r, rotate, err := o.openRotation(ctx, rotations)
	if err != nil {
		return err
	}
	defer r.close()
	if err := (&deploy.RotateEncryption{Rotate: rotate, Etcd: r.session.etcdOf}).Run(ctx); err != nil {
		return o.explain(err)
	}
	if o.rollout.dry() || o.rollout.wait.output == outputJSON {
		return nil
	}
	done := "nothing is encrypted any more."
	if wanted := r.session.topology.Setup.Spec.Encryption; wanted != nil {
		key := "the new key"
		if wanted.KMS != nil {
			key = fmt.Sprintf("the KMS %q", wanted.KMS.Name)
		}
		done = fmt.Sprintf("all %s are encrypted with %s.", strings.Join(wanted.Resources, " and "), key)
	}
	fmt.Fprintf(o.env.Streams.Err, "\nkcp %q: %s Backups from before have the keys that they need.\n",
		r.session.topology.Name, done)
	return nil
}

// tellEncryption says how to encrypt, or to decrypt, what up only prepares in a setup that runs.
func (o *upOptions) tellEncryption(s *session, e pki.Encryption) {
	wanted := pki.EncryptedResources(s.topology)
	without := func(all, some []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(r string) bool { return slices.Contains(some, r) })
	}
	var what string
	begins, ends := without(wanted, e.Resources), without(e.Resources, wanted)
	switch {
	case len(begins) > 0:
		what = fmt.Sprintf("The encryption of %s is prepared", strings.Join(begins, " and "))
	case len(ends) > 0:
		what = fmt.Sprintf("Existing %s are still encrypted", strings.Join(ends, " and "))
	case e.Phase != pki.PhaseNone:
		what = "The rotation of the encryption key is not complete"
	default:
		return
	}
	fmt.Fprintf(o.env.Streams.Err, "\n%s: continue with %s\n", what, o.setup.command("encryption rotate"))
}

package cmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

type certsRenewOptions struct {
	env     *Env
	setup   setupFlags
	rollout rolloutFlags
	within  days
	names   []string
}

func newCertsRenewCmd(env *Env) *cobra.Command {
	o := &certsRenewOptions{env: env}
	c := &cobra.Command{
		Use:   "renew [NAME...]",
		Short: "Renew certificates, and roll the components that use them",
		Long: `Renew issues new certificates, applies them, and rolls the components that use them: one after another,
each when the previous one is ready. NAME is a certificate, or a component such as root-shard or
shard/alpha. Without names it renews all certificates.

It does not replace authorities: use rotate-ca.`,
		Example: `  kcpctl certs renew --expiring-within 30d
  kcpctl certs renew shard/alpha demo-front-proxy-main-server`,
		RunE: func(c *cobra.Command, args []string) error {
			o.names = args
			return o.run(c.Context())
		},
		ValidArgsFunction: completeArgs(0, o.setup.names(env, certificateNames)),
	}
	o.setup.add(c.Flags())
	o.rollout.add(c)
	c.Flags().Var(&o.within, "expiring-within", "renew only certificates that expire this soon, such as 30d or 720h")
	c.Flags().Lookup("expiring-within").DefValue = "" // not 0s
	return c
}

func (o *certsRenewOptions) run(ctx context.Context) error {
	if err := o.rollout.validate(&o.setup); err != nil {
		return err
	}
	r, err := openRollout(ctx, o.env, &o.setup, &o.rollout)
	if err != nil {
		return err
	}
	defer r.close()
	t := r.session.topology
	certs, err := o.selected(t, r.state)
	if err != nil {
		return err
	}
	if len(certs) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "No certificate of kcp %q expires within %s.\n", t.Name, &o.within)
		return nil
	}
	renew := map[pki.LeafKey]bool{}
	var users []topology.ID
	for _, c := range certs {
		renew[c.Key()] = true
		if !slices.Contains(users, c.Component) {
			users = append(users, c.Component)
		}
	}
	title := fmt.Sprintf("renew %s of kcp %q, used by %s",
		plural(len(certs), "certificate", "certificates"), t.Name, plural(len(users), "component", "components"))
	err = r.renew(ctx, title, run.UpOptions{Only: users, Renew: func(c pki.Cert) bool { return renew[c.Key()] }})
	if err != nil || o.rollout.wait.output == outputJSON {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err, "\n%s renewed.\n", plural(len(certs), "certificate", "certificates"))
	return nil
}

// selected are the certificates that the names and --expiring-within select.
func (o *certsRenewOptions) selected(t *topology.Topology, s *pki.State) ([]pki.Cert, error) {
	l, err := pki.ListOf(t, s)
	if err != nil {
		return nil, err
	}
	soon := map[pki.LeafKey]bool{}
	for _, i := range l.Items {
		if i.Type == pki.ItemCertificate && i.EndsWithin(time.Duration(o.within), o.env.Now()) {
			soon[pki.LeafKey{Cluster: i.Cluster, Secret: i.Name}] = true
		}
	}
	table, known := pki.Table(t), map[string]bool{}
	var out []pki.Cert
	for _, c := range table {
		known[c.Secret], known[string(c.Component)] = true, true
		named := len(o.names) == 0 || slices.Contains(o.names, c.Secret) || slices.Contains(o.names, string(c.Component))
		if named && (o.within == 0 || soon[c.Key()]) {
			out = append(out, c)
		}
	}
	for _, n := range o.names {
		if !known[n] {
			return nil, unknownCertificate(n, table)
		}
	}
	return out, nil
}

func unknownCertificate(name string, table []pki.Cert) error {
	for _, ca := range topology.CAs {
		if name == string(ca) || name == string(ca)+"-ca" {
			return clierr.New(clierr.BadInput, "run kcpctl certs rotate-ca "+string(ca), "%q is an authority, not a certificate", name)
		}
	}
	var known []string
	for _, c := range table {
		if !slices.Contains(known, string(c.Component)) {
			known = append(known, string(c.Component))
		}
	}
	return unknownName("certificate or component", name, known)
}

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
	rollOptions
	within days
	names  []string
}

func newCertsRenewCmd(g *globalOptions) *cobra.Command {
	o := &certsRenewOptions{rollOptions: rollOptions{setupOptions: setupOptions{globalOptions: g}}}
	c := &cobra.Command{
		Use:   "renew [NAME...]",
		Short: "Issue certificates anew, and roll what uses them",
		Long: `Renew issues certificates anew, applies them, and rolls the components that use them, one after another, each behind its
readiness. A name is that of a certificate, or a component: root-shard, shard/alpha. Without names it is all certificates.

Authorities are not certificates in this sense: rotate-ca replaces them.`,
		Example: `  kcpctl certs renew --expiring-within 30d
  kcpctl certs renew shard/alpha demo-front-proxy-main-server`,
		RunE: func(c *cobra.Command, args []string) error {
			o.names = args
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	c.ValidArgsFunction = completeArgs(0, o.fromFile(theCertificates))
	o.addRollFlags(c)
	c.Flags().Var(&o.within, "expiring-within", "only those that expire within this time: 30d, 720h")
	return c
}

func (o *certsRenewOptions) run(ctx context.Context) error {
	r, err := o.openRollout(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	certs, err := o.choose(r.Topology, r.state)
	if err != nil {
		return err
	}
	if len(certs) == 0 {
		fmt.Fprintf(o.Streams.Err, "Nothing of kcp %q expires within %s.\n", r.Topology.Name, &o.within)
		return nil
	}
	chosen := map[pki.LeafKey]bool{}
	var users []topology.ID
	for _, c := range certs {
		chosen[c.Key()] = true
		if !slices.Contains(users, c.Component) {
			users = append(users, c.Component)
		}
	}
	title := fmt.Sprintf("renew %s of kcp %q, used by %s",
		plural(len(certs), "certificate", "certificates"), r.Topology.Name, plural(len(users), "component", "components"))
	err = r.roll(ctx, title, run.UpOptions{Only: users, Renew: func(c pki.Cert) bool { return chosen[c.Key()] }})
	if err != nil || o.output == outputJSON {
		return err
	}
	fmt.Fprintf(o.Streams.Err, "\n%s renewed.\n", plural(len(certs), "certificate", "certificates"))
	return nil
}

// choose returns the certificates that the names and --expiring-within mean.
func (o *certsRenewOptions) choose(t *topology.Topology, s *pki.State) ([]pki.Cert, error) {
	l, err := pki.ListOf(t, s)
	if err != nil {
		return nil, err
	}
	soon := map[pki.LeafKey]bool{}
	for _, i := range l.Items {
		if i.Type == pki.ItemCertificate && i.EndsWithin(time.Duration(o.within), o.Now()) {
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
	for _, ca := range pki.CAs() {
		if name == string(ca) || name == string(ca)+"-ca" {
			return clierr.New(clierr.BadInput, "run kcpctl certs rotate-ca "+string(ca), "%q is an authority, and no certificate", name)
		}
	}
	var ids []string
	for _, c := range table {
		if !slices.Contains(ids, string(c.Component)) {
			ids = append(ids, string(c.Component))
		}
	}
	return unknownName("certificate or component", name, ids)
}

// plural is a number of things: 1 certificate, 2 certificates.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

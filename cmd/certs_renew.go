package cmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type certsRenewOptions struct {
	env     *Env
	setup   setupFlags
	rollout rolloutFlags
	within  days
	names   []string
	// cronJob prints a job that renews certificates, instead of renewing them.
	cronJob bool
}

func newCertsRenewCmd(env *Env) *cobra.Command {
	o := &certsRenewOptions{env: env}
	c := &cobra.Command{
		Use:   "renew [NAME...]",
		Short: "Renew certificates, and roll the components that use them",
		Long: `Issue new certificates, apply them, and roll the components that use them: one after another,
each when the previous one is ready. NAME is a certificate, or a component such as root-shard or
shard/alpha. Without names it renews all certificates.

It does not replace authorities: use rotate-ca.

--print-cronjob prints the manifest of a CronJob that renews weekly, with its ServiceAccount and the permissions that it
needs. It uses the setup that was applied last (--applied) and the image of spec.workloads.image.`,
		Example: `  kcpctl certs renew --expiring-within 30d
  kcpctl certs renew --print-cronjob --expiring-within 30d | kubectl apply -f -
  kcpctl certs renew shard/alpha demo-front-proxy-main-server`,
		RunE:              withArgs(&o.names, o.run),
		ValidArgsFunction: completeArgs(0, o.setup.names(env, certificateNames)),
	}
	o.setup.addStarting(c.Flags())
	o.rollout.add(c)
	c.Flags().Var(&o.within, "expiring-within", "renew only certificates that expire this soon, such as 30d or 720h")
	c.Flags().BoolVar(&o.rollout.applied, "applied", false,
		"use the setup that was applied last, instead of the content of the setup file")
	c.Flags().BoolVar(&o.cronJob, "print-cronjob", false,
		"print a CronJob that renews certificates weekly (default of --expiring-within: 30d)")
	c.Flags().Lookup("expiring-within").DefValue = "" // not 0s
	excludeFlag(c.Flags(), "offline", "applied")      // the cluster has the setup that was applied last
	excludeFlag(c.Flags(), "print-cronjob", "offline", "dry-run", "parallel", "timeout", "skip-canary",
		"force-conflicts", "output", "as", "as-group")
	return c
}

func (o *certsRenewOptions) run(ctx context.Context) error {
	if err := o.rollout.validate(); err != nil {
		return err
	}
	if o.cronJob {
		return o.printCronJob(ctx)
	}
	s, err := loadSetup(o.env, &o.setup)
	if err == nil && !o.rollout.applied {
		_, err = o.named(s.topology)
	}
	if err != nil {
		return err
	}
	if o.rollout.inClient() {
		return o.printClient(s)
	}
	r, err := rolloutOf(ctx, s, &o.rollout)
	if err != nil {
		return err
	}
	defer r.close()
	t := r.session.topology // with --applied it is another setup than in the file
	certs, err := o.selected(t, r.state)
	if err != nil {
		return err
	}
	if len(certs) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "No certificate of kcp %q expires within %s.\n", t.Name, &o.within)
		return nil
	}
	if o.rollout.dry() && o.rollout.offline {
		printSecrets(r.session, certs)
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
		gather.Count(len(certs), "certificate", "certificates"), t.Name,
		gather.Count(len(users), "component", "components"))
	err = r.renew(ctx, title, deploy.UpOptions{Only: users, Renew: func(c pki.Cert) bool { return renew[c.Key()] }})
	if err != nil || o.rollout.wait.output == outputJSON || o.rollout.dry() {
		return err
	}
	fmt.Fprintf(o.env.Streams.Err, "\n%s renewed.\n", gather.Count(len(certs), "certificate", "certificates"))
	return nil
}

// printClient prints the Secrets of the certificates that the names select. It contacts no cluster.
func (o *certsRenewOptions) printClient(s *session) error {
	if o.within > 0 {
		return clierr.New(clierr.BadInput, "use --dry-run=server",
			"--expiring-within needs the certificates, which --dry-run=client does not read")
	}
	certs, err := o.named(s.topology)
	printSecrets(s, certs)
	return err
}

func printSecrets(s *session, certs []pki.Cert) {
	for _, c := range certs {
		s.env.printRefs(plan.Ref{
			GroupVersionKind: kind.Secret.GroupVersionKind, Name: c.Secret,
			Namespace: s.topology.Component(c.Component).Cluster.Namespace,
		})
	}
}

// selected are the certificates that the names and --expiring-within select.
func (o *certsRenewOptions) selected(t *topology.Topology, s *pki.State) ([]pki.Cert, error) {
	certs, err := o.named(t)
	if err != nil || o.within == 0 {
		return certs, err
	}
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
	return slices.DeleteFunc(certs, func(c pki.Cert) bool { return !soon[c.Key()] }), nil
}

// named are the certificates that the names select: the names of certificates, or of their components.
func (o *certsRenewOptions) named(t *topology.Topology) ([]pki.Cert, error) {
	table := pki.Table(t)
	for _, n := range o.names {
		if !slices.ContainsFunc(table, func(c pki.Cert) bool { return n == c.Secret || n == string(c.Component) }) {
			return nil, unknownCertificate(n, table)
		}
	}
	return slices.DeleteFunc(table, func(c pki.Cert) bool {
		return len(o.names) > 0 && !slices.Contains(o.names, c.Secret) && !slices.Contains(o.names, string(c.Component))
	}), nil
}

func unknownCertificate(name string, table []pki.Cert) error {
	for _, ca := range topology.CAs {
		if name == string(ca) || name == string(ca)+"-ca" {
			return clierr.New(clierr.BadInput, "run kcpctl certs rotate-ca "+string(ca),
				"%q is an authority, not a certificate", name)
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

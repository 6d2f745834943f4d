package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/plan"
	"github.com/kcpctl/kcpctl/internal/ui"
)

type certsListOptions struct {
	env    *Env
	setup  setupFlags
	output string
}

func newCertsListCmd(env *Env) *cobra.Command {
	o := &certsListOptions{env: env}
	c := &cobra.Command{
		Use:   "list",
		Short: "List authorities, service-account keys and certificates, and when each is due",
		Long: `List shows the setup's PKI. DUE is when a certificate is to be renewed, which kcpctl up does by itself.
For an authority, it is when its remaining time becomes too short to sign certificates with the
configured validity: replace it with rotate-ca.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.setup.add(c.Flags())
	addOutput(c, &o.output, "", machineFormats...)
	return c
}

func (o *certsListOptions) run(ctx context.Context) error {
	s, err := openStore(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	l, err := s.certificates(ctx)
	if err != nil {
		return err
	}
	if o.output != "" {
		return encode(o.env.Streams.Out, o.output, l)
	}
	out := o.env.Streams.Out
	var rows [][]string
	for _, i := range l.Items {
		rows = append(rows, o.row(i))
	}
	ui.Table(out, []string{"NAME", "CN", "ISSUER", "USED BY", "EXPIRES", "DUE"}, rows...)
	for _, r := range pki.AllRotations() {
		if phase, ok := l.Rotations[r.Key()]; ok {
			line := fmt.Sprintf("rotation of the %s: phase %s, %s", r, phase, phaseMeaning(phase))
			fmt.Fprintf(out, "\n%s\n", out.Yellow(line))
		}
	}
	return nil
}

// certificates lists what the setup's PKI has.
func (s *session) certificates(ctx context.Context) (*pki.List, error) {
	lost, err := s.leaveOut(ctx)
	if err != nil {
		return nil, err
	}
	state, err := s.loadPKI(ctx)
	if err != nil {
		return nil, err
	}
	l, err := pki.ListOf(s.topology, state)
	if err != nil {
		return nil, err
	}
	l.Items = slices.DeleteFunc(l.Items, func(i pki.Item) bool {
		_, unknown := plan.UnreachableIn(lost, i.Cluster)
		return unknown
	})
	l.Store = s.store().String()
	return l, nil
}

func (o *certsListOptions) row(i pki.Item) []string {
	name, cn, issuer, expires := i.Name, "-", "-", "-"
	if i.Role != "" {
		name += " (" + i.Role + ")"
	}
	if i.Info != nil {
		cn, issuer, expires = i.CN, i.Issuer, i.NotAfter.UTC().Format(time.DateOnly)
	}
	users := fmt.Sprintf("%d components", len(i.UsedBy))
	if len(i.UsedBy) == 1 {
		users = string(i.UsedBy[0])
	}
	return []string{name, cn, issuer, users, expires, o.due(i)}
}

// due is when an item is to be replaced: red if it is expired or missing, yellow if it is due soon.
func (o *certsListOptions) due(i pki.Item) string {
	out, now := o.env.Streams.Out, o.env.Now()
	switch {
	case !i.Issued:
		return out.Red("missing")
	case i.Info != nil && now.After(i.NotAfter):
		return out.Red("expired")
	case i.Due.IsZero():
		return "-"
	case i.IsDue(now):
		return out.Yellow("now")
	}
	in := "in " + ui.Age(i.Due.Sub(now))
	if i.Due.Sub(now) < 7*day {
		return out.Yellow(in)
	}
	return in
}

type certsCheckOptions struct {
	env    *Env
	setup  setupFlags
	within days
}

func newCertsCheckCmd(env *Env) *cobra.Command {
	o := &certsCheckOptions{env: env, within: days(30 * day)}
	c := &cobra.Command{
		Use:   "check",
		Short: "Fail if anything expires soon",
		Long: `Check lists the authorities and certificates that expire soon or are missing, and exits with 1 if it
finds any. Use it in cron jobs and for monitoring.`,
		Example: "  kcpctl certs check --expiring-within 30d",
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.setup.add(c.Flags())
	c.Flags().Var(&o.within, "expiring-within", "how soon, such as 30d or 720h")
	return c
}

func (o *certsCheckOptions) run(ctx context.Context) error {
	s, err := openStore(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	l, err := s.certificates(ctx)
	if err != nil {
		return err
	}
	var remedies []string
	found := 0
	for _, i := range l.Items {
		if !i.EndsWithin(time.Duration(o.within), o.env.Now()) {
			continue
		}
		found++
		fmt.Fprintln(o.env.Streams.Out, o.expiry(i))
		if r := o.remedy(i); !slices.Contains(remedies, r) {
			remedies = append(remedies, r)
		}
	}
	if found == 0 {
		fmt.Fprintf(o.env.Streams.Err, "No certificate of kcp %q expires within %s.\n", s.topology.Name, &o.within)
		return nil
	}
	return clierr.New(clierr.Failed, "run "+strings.Join(remedies, ", then "),
		"kcp %q has %s missing, expired or due to expire within %s",
		s.topology.Name, plural(found, "certificate", "certificates"), &o.within)
}

func (o *certsCheckOptions) expiry(i pki.Item) string {
	if i.Info == nil {
		return i.Name + " is missing"
	}
	day, left := i.NotAfter.UTC().Format(time.DateOnly), i.NotAfter.Sub(o.env.Now())
	if left < 0 {
		return i.Name + " expired on " + day
	}
	return fmt.Sprintf("%s expires on %s, in %s", i.Name, day, ui.Age(left))
}

// remedy is the command that replaces an item.
func (o *certsCheckOptions) remedy(i pki.Item) string {
	switch {
	case !i.Issued:
		return o.setup.command("up")
	case i.Type == pki.ItemAuthority:
		return o.setup.command("certs rotate-ca " + strings.TrimSuffix(i.Name, "-ca"))
	}
	return o.setup.command("certs renew --expiring-within " + o.within.String())
}

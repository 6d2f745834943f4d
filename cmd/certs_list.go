package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/gather"
)

type certsListOptions struct {
	env    *Env
	setup  setupFlags
	output string
	all    bool
}

func newCertsListCmd(env *Env) *cobra.Command {
	o := &certsListOptions{env: env}
	c := &cobra.Command{
		Use:   "list",
		Short: "List authorities, service-account keys and certificates, and when each is due",
		Long: `List the authorities, service-account keys and certificates of the setup. RENEWAL is when kcpctl
up renews a certificate. For an authority, it is when the authority can no longer sign certificates with
the configured validity: replace it with rotate-ca. Many certificates that differ only
in their component are listed as one; --all lists each, and -o wide adds common names and issuers.`,
		Example: `  kcpctl certs list
  kcpctl certs list --all -o wide
  kcpctl certs list -o json | jq -r '.items[] | select(.type == "Certificate") | .name'`,
		Args: noArgs,
		RunE: withoutArgs(o.run),
	}
	o.setup.add(c.Flags())
	addAll(c.Flags(), &o.all, "certificate", "dates")
	addOutput(c, &o.output, "", append([]string{outputWide}, machineFormats...)...)
	return c
}

func (o *certsListOptions) run(ctx context.Context) error {
	s, err := openStore(ctx, o.env, &o.setup)
	if err != nil {
		return err
	}
	defer s.close()
	l, err := certificatesOf(ctx, s)
	if err != nil {
		return err
	}
	if o.output != "" && o.output != outputWide {
		return encode(o.env.Streams.Out, o.output, l)
	}
	out := o.env.Streams.Out
	header := []string{"NAME", "USED BY", "EXPIRES", "RENEWAL"}
	if o.output == outputWide {
		header = append(header, "CN", "ISSUER")
	}
	ui.Table(out, header, o.rows(l.Items)...)
	for _, r := range pki.AllRotations() {
		if phase, ok := l.Rotations[r.Key()]; ok {
			line := fmt.Sprintf("rotation of the %s: phase %s, %s", r, phase, phaseMeaning(pki.Rotations{r}, phase))
			fmt.Fprintf(out, "\n%s\n", out.Yellow(line))
		}
	}
	return nil
}

// certificatesOf lists what the setup's PKI has.
func certificatesOf(ctx context.Context, s *session) (*pki.List, error) {
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
	l.Unreachable = plan.ClustersOf(lost)
	return l, markLost(ctx, s, l, state)
}

// markLost marks the authorities whose keys are lost, and notes them. Without a connection that is not known.
func markLost(ctx context.Context, s *session, l *pki.List, state *pki.State) error {
	if s.runtime == nil {
		return nil
	}
	known, err := s.runtime.Record(ctx)
	if err != nil {
		return err
	}
	l.MarkLost(known.LostKeys(state))
	if lost, next := known.LostKeysMessage(state, l.Store); lost != "" {
		s.reporter.note(lost + "; " + next)
	}
	return nil
}

// rows returns the rows of the table: one for many certificates that are alike, unless --all is given.
func (o *certsListOptions) rows(items []pki.Item) [][]string {
	var rows [][]string
	if o.all {
		for _, i := range items {
			rows = append(rows, o.row(i, users(i), ""))
		}
		return rows
	}
	for _, alike := range gather.Alike(items, func(i pki.Item) string {
		return strings.Join(o.row(i, string(i.Component.Kind()), i.Component.Name()), "\n")
	}) {
		first := alike[0]
		if len(alike) == 1 {
			rows = append(rows, o.row(first, users(first), ""))
			continue
		}
		rows = append(rows, o.row(first, several(alike), first.Component.Name()))
	}
	return rows
}

// several names the components of certificates that are alike: 99 shards.
func several(items []pki.Item) string {
	return fmt.Sprintf("%d %s", len(items), items[0].Component.Kind().Plural())
}

// users names the components that use an item.
func users(i pki.Item) string {
	if len(i.UsedBy) == 1 {
		return string(i.UsedBy[0])
	}
	return fmt.Sprintf("%d components", len(i.UsedBy))
}

// row is the row of an item, without the name of its component.
func (o *certsListOptions) row(i pki.Item, users, without string) []string {
	name, cn, issuer, expires := gather.Without(i.Name, without), "-", "-", "-"
	if i.Role != "" {
		name += " (" + i.Role + ")"
	}
	if i.Info != nil {
		cn, issuer, expires = gather.Without(i.CN, without), i.Issuer, i.NotAfter.UTC().Format(time.DateOnly)
	}
	out := o.env.Streams.Out
	cells := []string{out.Text(name), users, expires, o.due(i)}
	if o.output == outputWide {
		cells = append(cells, out.Text(cn), issuer)
	}
	return cells
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
		Long: `List the authorities and certificates that expire soon or are missing, and exit with 1 if there are any, or
with 5 if they cannot be read. Use it in cron jobs and for monitoring.`,
		Example: "  kcpctl certs check --expiring-within 30d",
		Args:    noArgs,
		RunE:    withoutArgs(o.run),
	}
	o.setup.add(c.Flags())
	c.Flags().Var(&o.within, "expiring-within", "how soon, such as 30d or 720h")
	return c
}

func (o *certsCheckOptions) run(ctx context.Context) error {
	s, err := openStore(ctx, o.env, &o.setup)
	if err != nil {
		return orUnknown(err)
	}
	defer s.close()
	l, err := certificatesOf(ctx, s)
	if err != nil {
		return orUnknown(err)
	}
	ending := slices.DeleteFunc(l.Items,
		func(i pki.Item) bool { return !i.EndsWithin(time.Duration(o.within), o.env.Now()) })
	o.print(ending)
	var remedies []string
	for _, i := range ending {
		if r := o.remedy(i); !slices.Contains(remedies, r) {
			remedies = append(remedies, r)
		}
	}
	if err := unknownOn("certificates", l.Unreachable); err != nil && len(ending) == 0 {
		return err
	}
	if len(ending) == 0 {
		fmt.Fprintf(o.env.Streams.Err, "No certificate of kcp %q expires within %s.\n", s.topology.Name, &o.within)
		return nil
	}
	return clierr.New(clierr.Failed, "run "+strings.Join(remedies, ", then "),
		"kcp %q has %s missing, expired or due to expire within %s",
		s.topology.Name, gather.Count(len(ending), "certificate", "certificates"), &o.within)
}

// print prints a line for each item, or for many certificates that are alike.
func (o *certsCheckOptions) print(items []pki.Item) {
	out := o.env.Streams.Out
	name := func(i pki.Item) string { return gather.Without(i.Name, i.Component.Name()) }
	for _, alike := range gather.Alike(items, func(i pki.Item) string {
		return string(i.Component.Kind()) + "\n" + name(i) + "\n" + o.expiry(i)
	}) {
		subject := alike[0].Name
		if len(alike) > 1 {
			subject = name(alike[0]) + " of " + several(alike)
		}
		fmt.Fprintln(out, out.Text(subject), o.expiry(alike[0]))
	}
}

func (o *certsCheckOptions) expiry(i pki.Item) string {
	if i.Info == nil {
		return "is missing"
	}
	day, left := i.NotAfter.UTC().Format(time.DateOnly), i.NotAfter.Sub(o.env.Now())
	if left < 0 {
		return "expired on " + day
	}
	return fmt.Sprintf("expires on %s, in %s", day, ui.Age(left))
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

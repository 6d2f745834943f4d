package cmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/ui"
)

const day = 24 * time.Hour

// days is a duration that may also be given in days: 30d, 1d12h, 720h.
type days time.Duration

func (d *days) Type() string { return "duration" }

func (d *days) String() string {
	if v := time.Duration(*d); v%day != 0 || v == 0 {
		return v.String()
	}
	return fmt.Sprintf("%dd", time.Duration(*d)/day)
}

func (d *days) Set(text string) error {
	n, rest, ok := strings.Cut(text, "d")
	total := time.Duration(0)
	if ok {
		whole, err := strconv.ParseUint(n, 10, 15)
		if err != nil {
			return fmt.Errorf("%q is no duration such as 30d or 720h", text)
		}
		total = time.Duration(whole) * day
	} else {
		rest = text
	}
	if rest != "" || !ok {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 {
			return fmt.Errorf("%q is no duration such as 30d or 720h", text)
		}
		total += more
	}
	*d = days(total)
	return nil
}

type certsListOptions struct {
	setupOptions
	output string
}

func newCertsListCmd(g *globalOptions) *cobra.Command {
	o := &certsListOptions{setupOptions: setupOptions{globalOptions: g}}
	c := &cobra.Command{
		Use:   "list",
		Short: "Show authorities, service-account keys and certificates, and when they are due",
		Long: `List shows what the setup's PKI has. DUE is when a certificate is to be replaced, which kcpctl up does by itself, and from
when on an authority is too near its end to sign for as long as it should: rotate-ca replaces it.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c.Flags())
	addOutput(c, &o.output, "", forPrograms()...)
	return c
}

func (o *certsListOptions) run(ctx context.Context) error {
	return o.withList(ctx, func(_ *session, l *pki.List) error {
		if o.output != "" {
			return encode(o.Streams.Out, o.output, l)
		}
		o.printCertificates(l)
		return nil
	})
}

// withList calls a function with what the setup's PKI has.
func (o *setupOptions) withList(ctx context.Context, do func(*session, *pki.List) error) error {
	return o.withState(ctx, func(s *session, st pki.Store, state *pki.State) error {
		l, err := pki.ListOf(s.Topology, state)
		if err != nil {
			return err
		}
		l.Store = st.String()
		return do(s, l)
	})
}

func (e *Env) printCertificates(l *pki.List) {
	var rows [][]string
	for _, i := range l.Items {
		rows = append(rows, e.certificateRow(i))
	}
	ui.Table(e.Streams.Out, []string{"NAME", "CN", "ISSUER", "USED BY", "EXPIRES", "DUE"}, rows...)
	for _, r := range pki.AllRotations() {
		phase, ok := l.Rotations[r.Key()]
		if !ok {
			continue
		}
		fmt.Fprintf(e.Streams.Out, "\n%s\n", e.Streams.Out.Yellow(fmt.Sprintf("rotation of the %s: phase %s, %s", r, phase, meaning(phase))))
	}
}

func (e *Env) certificateRow(i pki.Item) []string {
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
	return []string{name, cn, issuer, users, expires, e.due(i)}
}

// due is when an item is to be replaced: red where it is over or missing, yellow where it is due.
func (e *Env) due(i pki.Item) string {
	out, now := e.Streams.Out, e.Now()
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
	setupOptions
	within days
}

func newCertsCheckCmd(g *globalOptions) *cobra.Command {
	o := &certsCheckOptions{setupOptions: setupOptions{globalOptions: g}, within: days(30 * day)}
	c := &cobra.Command{
		Use:   "check",
		Short: "Fail if anything expires soon",
		Long: `Check names the authorities and certificates that expire within a time, or are missing, and exits with 1 if there are
any: for cron jobs and monitoring.`,
		Example: "  kcpctl certs check --expiring-within 30d",
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.addFlags(c.Flags())
	c.Flags().Var(&o.within, "expiring-within", "how soon: 30d, 720h")
	return c
}

func (o *certsCheckOptions) run(ctx context.Context) error {
	return o.withList(ctx, func(s *session, l *pki.List) error {
		var hints []string
		found := 0
		for _, i := range l.Items {
			if !i.EndsWithin(time.Duration(o.within), o.Now()) {
				continue
			}
			found++
			fmt.Fprintln(o.Streams.Out, o.expiry(i))
			if hint := o.remedy(i); len(hints) == 0 || hints[len(hints)-1] != hint {
				hints = append(hints, hint)
			}
		}
		if found == 0 {
			fmt.Fprintf(o.Streams.Err, "Nothing of kcp %q expires within %s.\n", s.Topology.Name, &o.within)
			return nil
		}
		return clierr.New(clierr.Failed, "run "+strings.Join(hints, ", "), "of kcp %q, %s within %s or missing", s.Topology.Name,
			plural(found, "certificate is expiring", "certificates are expiring"), &o.within)
	})
}

func (o *certsCheckOptions) expiry(i pki.Item) string {
	switch {
	case i.Info == nil:
		return i.Name + " is missing"
	case o.Now().After(i.NotAfter):
		return i.Name + " expired on " + i.NotAfter.UTC().Format(time.DateOnly)
	}
	return fmt.Sprintf("%s expires on %s, in %s", i.Name, i.NotAfter.UTC().Format(time.DateOnly), ui.Age(i.NotAfter.Sub(o.Now())))
}

// remedy is the command that replaces an item.
func (o *certsCheckOptions) remedy(i pki.Item) string {
	switch {
	case !i.Issued:
		return "kcpctl up" + o.flagsForTip()
	case i.Type == pki.ItemAuthority:
		return "kcpctl certs rotate-ca " + strings.TrimSuffix(i.Name, "-ca") + o.flagsForTip()
	}
	return "kcpctl certs renew --expiring-within " + o.within.String() + o.flagsForTip()
}

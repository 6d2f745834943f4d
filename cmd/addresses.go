package cmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/engine/run/deploy"
)

// addresses are the lines about the addresses of exposed components after a run.
type addresses struct {
	// assigned has the URLs of components whose clusters assign them, records the DNS records to create, and missing
	// why some are not known yet.
	assigned, records, missing [][]string
}

// lookupWithin is how long the lookups of names may take together. Records whose lookups take longer are printed.
const lookupWithin = 5 * time.Second

// lookup returns the addresses of a host name.
type lookup func(ctx context.Context, host string) ([]string, error)

// leads reports whether the name of a record leads to its value already, seen from this machine.
func (l lookup) leads(ctx context.Context, d deploy.DNSRecord) bool {
	have, err := l(ctx, d.Name)
	if err != nil {
		return false
	}
	want := []string{d.Value}
	if d.Type == "CNAME" {
		want, _ = l(ctx, d.Value) // without an address, the record is printed
	}
	return slices.ContainsFunc(want, func(address string) bool { return slices.Contains(have, address) })
}

// addressesOf reads the addresses of the components that are exposed by a load balancer or by an Ingress.
func addressesOf(ctx context.Context, s *session, l lookup) (addresses, error) {
	var out addresses
	var ask []*topology.Component
	for _, c := range s.topology.Servers() {
		if c.Assignment.Pending() {
			continue // its cluster was left out
		}
		if c.Assignment.Host || c.Assignment.Port {
			out.assigned = append(out.assigned, []string{string(c.ID()), publicURL(c)})
		}
		if deploy.NeedsRecords(c) {
			ask = append(ask, c)
		}
	}
	if len(ask) == 0 {
		return out, nil
	}
	live, err := s.runtime.Addresses(ctx, ask)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWithin)
	defer cancel()
	for _, c := range ask {
		out.add(ctx, c, live[c.ID()], l)
	}
	return out, nil
}

// add adds the DNS records of a component that do not exist yet: its host names lead to the addresses of its load
// balancer or its Ingress.
func (a *addresses) add(ctx context.Context, c *topology.Component, live run.Assigned, l lookup) {
	records, names := deploy.DNSRecords(c, live)
	if len(names) > 0 && len(live.Hosts) == 0 {
		a.missing = append(a.missing, []string{names[0], live.Reason})
		return
	}
	for _, d := range slices.DeleteFunc(records, func(d deploy.DNSRecord) bool { return l.leads(ctx, d) }) {
		a.records = append(a.records, []string{d.Name + ".", d.Type, d.Value, "(" + string(c.ID()) + ")"})
	}
}

// publicURL is the URL of a component for clients outside its cluster.
func publicURL(c *topology.Component) string {
	if c.Kind == topology.FrontProxy {
		return c.ExternalURL
	}
	return c.URL
}

func indented(rows [][]string) [][]string {
	for _, r := range rows {
		r[0] = "  " + r[0]
	}
	return rows
}

func (a addresses) print(w *ui.Stream) {
	for _, part := range []struct {
		title string
		rows  [][]string
	}{
		{"Addresses that the clusters have assigned:", a.assigned},
		{"Create these DNS records, unless they exist:", a.records},
		{"DNS records that need an address first (kcpctl up prints them again):", a.missing},
	} {
		if len(part.rows) > 0 {
			fmt.Fprintf(w, "\n%s\n", part.title)
			ui.Table(w, nil, indented(part.rows)...)
		}
	}
}

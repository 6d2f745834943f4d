package cmd

import (
	"context"
	"fmt"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// addresses are the lines about the addresses of exposed components after a run.
type addresses struct {
	// assigned has the URLs of components whose clusters assign them, records the DNS records to create, and missing
	// why some are not known yet.
	assigned, records, missing [][]string
}

// addressesOf reads the addresses of the components that are exposed by a load balancer or by an Ingress.
func addressesOf(ctx context.Context, s *session) (addresses, error) {
	var out addresses
	var ask []*topology.Component
	for _, c := range s.topology.Servers() {
		if c.Assignment.Pending() {
			continue // its cluster was left out
		}
		if c.Assignment.Host || c.Assignment.Port {
			out.assigned = append(out.assigned, []string{string(c.ID()), publicURL(c)})
		}
		if run.NeedsRecords(c) {
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
	for _, c := range ask {
		out.add(c, live[c.ID()])
	}
	return out, nil
}

// add adds the DNS records of a component: its host names lead to the addresses of its load balancer or its Ingress.
func (a *addresses) add(c *topology.Component, live run.Assigned) {
	records, names := run.DNSRecords(c, live)
	if len(names) > 0 && len(live.Hosts) == 0 {
		a.missing = append(a.missing, []string{names[0], live.Reason})
		return
	}
	for _, d := range records {
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

// print prints everything that there is to say.
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

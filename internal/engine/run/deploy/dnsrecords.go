package deploy

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/check"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/poll"
)

const (
	// recordsAfter is how long a run takes before it looks for DNS records: shorter runs do not need them.
	recordsAfter = 10 * time.Second
	recordsEvery = 5 * time.Second
)

// DNSRecord is a DNS record that leads clients to a component.
type DNSRecord struct {
	// Name is a host name without the final dot.
	Name, Type, Value string
}

// NeedsRecords reports whether a component is exposed in a way that needs DNS records, if its address has a host name.
func NeedsRecords(c *topology.Component) bool {
	t := c.Expose.Type
	return t == v1alpha1.ExposeLoadBalancer || t == v1alpha1.ExposeIngress
}

// DNSRecords returns the records from the host names of a component to its load balancer or its Ingress. Names are the
// host names that need records: there are no records yet if nothing is assigned.
func DNSRecords(c *topology.Component, live run.Assigned) (records []DNSRecord, names []string) {
	names = slices.DeleteFunc(c.PublicHosts(), func(h string) bool {
		return net.ParseIP(h) != nil || slices.Contains(live.Hosts, h)
	})
	for _, name := range names {
		for _, host := range live.Hosts {
			records = append(records, DNSRecord{name, recordType(host), host})
		}
	}
	return records, names
}

func recordType(host string) string {
	switch ip := net.ParseIP(host); {
	case ip == nil:
		return "CNAME"
	case ip.To4() == nil:
		return "AAAA"
	}
	return "A"
}

// announceRecords shows the DNS records of names that do not exist, as soon as their addresses are assigned: components
// that dial each other by these names are not ready before. It ends with the run.
func (r *rollout) announceRecords(ctx context.Context) {
	var ask []*topology.Component
	for _, c := range r.changes.all {
		if _, names := DNSRecords(c.Component, run.Assigned{}); NeedsRecords(c.Component) && len(names) > 0 {
			ask = append(ask, c.Component)
		}
	}
	for pause := recordsAfter; len(ask) > 0; pause = recordsEvery {
		if poll.Pause(ctx, pause) != nil {
			return
		}
		live, err := r.Runtime.Addresses(ctx, ask)
		if err != nil {
			continue // the run itself reports a lost connection
		}
		rows := [][]string{{"NAME", "TYPE", "ADDRESS", "COMPONENT"}}
		ask = slices.DeleteFunc(ask, func(c *topology.Component) bool {
			records, _ := DNSRecords(c, live[c.ID()])
			for _, d := range records {
				if !r.resolves(ctx, d.Name) {
					rows = append(rows, []string{d.Name + ".", d.Type, d.Value, string(c.ID())})
				}
			}
			return len(records) > 0
		})
		if len(rows) > 1 && ctx.Err() == nil {
			r.Emit(run.Event{Scope: run.Note,
				Message: "host names do not resolve on this machine: create these DNS records, unless the " +
					"clusters have them", Table: rows})
		}
	}
}

func (u *Up) resolves(ctx context.Context, host string) bool {
	network := u.Network
	if network == nil {
		network = &check.System{}
	}
	_, err := network.LookupHost(ctx, host)
	return err == nil
}

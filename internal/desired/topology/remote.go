package topology

import (
	"maps"
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// RemoteAddress is an address that components of one place dial, and that does not lead to a Service of the same
// place. Whether it leads anywhere cannot be known from the setup file.
type RemoteAddress struct {
	// From is the place of the clients.
	From Cluster
	// Server is the component that should answer there. For a server outside of the setup it is the component that
	// dials it, and External says what it is, such as "external etcd".
	Server   ID
	External string
	// URL is the first URL with the address, and Address its host and port.
	URL, Address string
	// Trust is the authority whose bundle verifies the server. It is empty for a server outside of the setup.
	Trust CA
	// CA are the certificates, in PEM format, that verify a server outside of the setup. Without them its certificate
	// does not matter.
	CA string
	// Serving is the user's own certificate that is served there. Nil: the certificate of the setup is served.
	Serving *v1alpha1.Serving
	// Optional is set if only a feature needs the address that an installation need not use, or if components serve
	// without it.
	Optional bool

	// purposes are the purposes of clients of each kind, in the order of the connections.
	purposes map[Kind][]string
}

// To names what should answer: a component, or a server outside of the setup.
func (a *RemoteAddress) To() string {
	if a.External != "" {
		return a.External + " of " + string(a.Server)
	}
	return string(a.Server)
}

// Reason lists the clients and the purposes: "front-proxy: requests of clients; shard: cache".
func (a *RemoteAddress) Reason() string {
	var parts []string
	for _, k := range slices.SortedFunc(maps.Keys(a.purposes), func(x, y Kind) int { return x.order() - y.order() }) {
		parts = append(parts, string(k)+": "+strings.Join(a.purposes[k], ", "))
	}
	return strings.Join(parts, "; ")
}

func (a *RemoteAddress) needs(k Kind, what string) {
	if !slices.Contains(a.purposes[k], what) {
		a.purposes[k] = append(a.purposes[k], what)
	}
}

// RemoteAddresses returns the addresses that components of each place dial elsewhere, each once per place: the
// addresses of the connections, of external etcds, and of the issuers of tokens. They are in the order of the places.
// There are none on this machine.
func (t *Topology) RemoteAddresses() []*RemoteAddress {
	found := remoteAddresses{t: t, byPlace: map[string]map[string]*RemoteAddress{}}
	if t.Local() {
		return nil
	}
	for _, e := range t.edges {
		if e.What != "" {
			found.addEdge(e)
		}
	}
	for _, c := range t.Running() {
		if c.Storage != nil && c.Storage.Etcd == "" {
			for _, server := range c.Storage.Servers {
				found.add(c.Cluster, c.Kind, "its data", false,
					RemoteAddress{Server: c.ID(), External: "external etcd", URL: server})
			}
		}
		if c.Authentication == nil {
			continue
		}
		for _, l := range c.Authentication.Logins() {
			found.add(c.Cluster, c.Kind, purposeTokens, true,
				RemoteAddress{Server: c.ID(), External: "issuer", URL: l.KeysURL, CA: l.CA})
		}
	}
	return found.sorted()
}

// purposeTokens is what components dial issuers and webhooks for. They serve without them, and then accept no tokens of
// theirs.
const purposeTokens = "tokens of users"

// WebhookAddress returns the address of a server that a component asks about tokens. Only the Secret with its
// kubeconfig has the address.
func WebhookAddress(c *Component, rawURL, ca string) *RemoteAddress {
	return &RemoteAddress{
		From: c.Cluster, Server: c.ID(), External: "webhook", URL: rawURL, Address: HostPort(rawURL),
		CA: ca, Optional: true,
		purposes: map[Kind][]string{c.Kind: {purposeTokens}},
	}
}

// Probes reports whether runs try remote addresses: they do if the setup has several places.
func (t *Topology) Probes() bool { return len(t.Clusters) > 1 }

type remoteAddresses struct {
	t *Topology
	// byPlace are the addresses by the name of the place and by the address.
	byPlace map[string]map[string]*RemoteAddress
	all     []*RemoteAddress
}

// addEdge adds the addresses of an edge. Its clients are grouped by place and kind first: each of a thousand shards
// dials all others.
func (r *remoteAddresses) addEdge(e Edge) {
	var clients []*Component // one of each group
	for _, id := range e.Clients {
		c := r.t.Component(id)
		known := slices.ContainsFunc(clients,
			func(o *Component) bool { return o.Cluster.Name == c.Cluster.Name && o.Kind == c.Kind })
		if !known {
			clients = append(clients, c)
		}
	}
	for _, c := range clients {
		for _, s := range e.Servers {
			server := r.t.Component(s.Component)
			if s.URL == "" || server.Assignment.Pending() ||
				server.Cluster.Name == c.Cluster.Name && hostOf(s.URL) == server.Host() {
				continue
			}
			r.add(c.Cluster, c.Kind, e.What, e.Optional,
				RemoteAddress{Server: s.Component, URL: s.URL, Trust: e.Trust, Serving: s.Serving})
		}
	}
}

func (r *remoteAddresses) add(place Cluster, k Kind, what string, optional bool, a RemoteAddress) {
	a.From, a.Address, a.Optional, a.purposes = place, HostPort(a.URL), optional, map[Kind][]string{}
	if r.byPlace[place.Name] == nil {
		r.byPlace[place.Name] = map[string]*RemoteAddress{}
	}
	known := r.byPlace[place.Name][a.Address]
	if known == nil {
		known = &a
		r.byPlace[place.Name][a.Address] = known
		r.all = append(r.all, known)
	}
	known.Optional = known.Optional && optional
	known.needs(k, what)
}

// sorted returns the addresses in the order of the places, and of the servers in a place.
func (r *remoteAddresses) sorted() []*RemoteAddress {
	position := map[ID]int{}
	for i, c := range r.t.Components {
		position[c.ID()] = i
	}
	places := map[string]int{}
	for i, c := range r.t.Clusters {
		places[c.Name] = i
	}
	slices.SortStableFunc(r.all, func(a, b *RemoteAddress) int {
		if d := places[a.From.Name] - places[b.From.Name]; d != 0 {
			return d
		}
		return position[a.Server] - position[b.Server]
	})
	return r.all
}

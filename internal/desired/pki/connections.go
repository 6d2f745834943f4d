package pki

import (
	"slices"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Connection is one client and one server of a setup.
type Connection struct {
	Client     topology.ID
	ClientCert LeafKey
	Server     topology.ID
	// URL is the address that the client dials, and Host the name that it expects in the server's certificate.
	URL, Host string
	// Trust is the authority whose bundle verifies the server, Accept the one whose bundle verifies the client.
	Trust, Accept topology.CA
	// Serving is the user's own certificate that is served at the URL, which is not verified with the bundle of Trust.
	Serving *v1alpha1.Serving
}

// Connections returns the connections of a setup that can be tested at the URL of a server. Of an edge with more than
// a number of connections it returns some, in which every client and every server occurs.
func Connections(t *topology.Topology, most int) []Connection {
	var all []Connection
	for _, e := range t.Edges() {
		servers := slices.DeleteFunc(slices.Clone(e.Servers), func(s topology.Endpoint) bool { return s.URL == "" })
		if e.Clients[0] == topology.Self || len(servers) == 0 {
			continue
		}
		add := func(client topology.ID, s topology.Endpoint) {
			all = append(all, Connection{
				client, leafKey(t, client, e.Cert), s.Component, s.URL, s.Host, e.Trust, e.Accept, s.Serving,
			})
		}
		if len(e.Clients)*len(servers) > most {
			for i := range max(len(e.Clients), len(servers)) {
				add(e.Clients[i%len(e.Clients)], servers[(i+1)%len(servers)])
			}
			continue
		}
		for _, client := range e.Clients {
			for _, s := range servers {
				add(client, s)
			}
		}
	}
	return all
}

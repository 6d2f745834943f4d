package pki

import (
	"slices"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// Connection is a client and a server of a setup: who dials whom, with what, and what each has to accept.
type Connection struct {
	Client     topology.ID
	ClientCert LeafKey
	Server     topology.ID
	ServerCert LeafKey
	// URL is what the client dials, Host the name that it expects in the server's certificate.
	URL, Host string
	// Trust is the authority with whose bundle the client verifies the server, Accept that with which the server verifies
	// the client.
	Trust, Accept CA
}

// Connections returns the pairs of a setup that can be tried at the servers' client ports. Where more than some clients each
// dial more servers than that, it returns so many pairs of them that every client and every server is in one.
func Connections(t *topology.Topology, most int) []Connection {
	var all []Connection
	for _, d := range dials(t) {
		clients := slices.DeleteFunc(slices.Clone(d.clients), func(p presented) bool { return p.cert == (LeafKey{}) })
		servers := slices.DeleteFunc(slices.Clone(d.servers), func(s served) bool { return s.url == "" })
		if len(clients) == 0 || len(servers) == 0 {
			continue
		}
		add := func(c presented, s served) {
			all = append(all, Connection{c.component, c.cert, s.component, s.cert, s.url, s.host, d.trust, d.accept})
		}
		if len(clients)*len(servers) > most {
			for i := range max(len(clients), len(servers)) {
				add(clients[i%len(clients)], servers[(i+1)%len(servers)])
			}
			continue
		}
		for _, c := range clients {
			for _, s := range servers {
				add(c, s)
			}
		}
	}
	return all
}

package topology

import (
	"slices"
	"strings"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// Trust has the certificates with which clients of a kubeconfig verify servers: one bundle for all servers.
type Trust struct {
	// CA is the authority of the setup, and Own are certificates of authorities of the user, in PEM format.
	CA  CA
	Own string
	// System is set if there is no bundle: clients use the authorities of their system. They cannot be united with
	// others.
	System bool
}

// Bundle returns the bundle, in PEM format. It is empty if clients use the authorities of their system.
func (t Trust) Bundle(trusted func(CA) []byte) []byte {
	if t.System {
		return nil
	}
	return slices.Concat(trusted(t.CA), []byte(t.Own))
}

// TrustOf returns the trust of all connections for which c uses a kubeconfig.
func (t *Topology) TrustOf(c *Component, kubeconfig string) Trust {
	var out trusts
	for _, e := range t.EdgesFrom(c) {
		if e.With == kubeconfig {
			out.add(e)
		}
	}
	return out.unite()
}

// Trust returns the trust of the kubeconfig of a user. The server may be the only one that the user dials.
func (a Access) Trust() Trust {
	var out trusts
	out.add(Edge{Trust: ServerCA, Servers: []Endpoint{{Serving: a.Serving}}})
	return out.unite()
}

// trusts are what verifies the servers of some connections.
type trusts struct {
	ca CA
	// setup: some servers present certificates of the setup. unknown: some present a certificate whose authority is not
	// in the setup file.
	setup, unknown bool
	own            []string
}

func (t *trusts) add(e Edge) {
	t.ca = e.Trust
	for _, s := range e.Servers {
		switch {
		case s.Serving == nil:
			t.setup = true
		case s.Serving.CA == "":
			t.unknown = true
		case !slices.Contains(t.own, s.Serving.CA):
			t.own = append(t.own, s.Serving.CA)
		}
	}
}

// unite returns one bundle. It has the authority of the setup also if only others are needed, because a front-proxy
// presents its previous certificate until it has rolled.
func (t *trusts) unite() Trust {
	if t.unknown && !t.setup && len(t.own) == 0 {
		return Trust{System: true}
	}
	out := Trust{CA: t.ca}
	for _, pem := range t.own {
		out.Own += strings.TrimRight(pem, "\n") + "\n"
	}
	return out
}

// Mistrust is a client that cannot verify a certificate which is not of the setup.
type Mistrust struct {
	Client ID
	// Server presents the certificate, and Other is a server with one of the setup, which the same kubeconfig leads to.
	Server, Other Endpoint
}

// Mistrusted returns, for each front-proxy with a certificate whose authority is not in the setup file, one client
// that also dials servers of the setup with the same kubeconfig. Such a client needs a bundle, so it does not use the
// authorities of its system.
func (t *Topology) Mistrusted() []Mistrust {
	var out []Mistrust
	for _, c := range t.Components {
		for _, e := range t.EdgesFrom(c) {
			for _, s := range e.Servers {
				known := slices.ContainsFunc(out, func(m Mistrust) bool { return m.Server.Component == s.Component })
				if !unknownAuthority(s.Serving) || e.With == "" || known {
					continue
				}
				if other := t.besides(c, e.With); other != nil {
					out = append(out, Mistrust{c.ID(), s, *other})
				}
			}
		}
	}
	return out
}

// besides returns a server with a certificate of the setup, or with a bundle of the user, to which a kubeconfig of c
// leads.
func (t *Topology) besides(c *Component, kubeconfig string) *Endpoint {
	for _, e := range t.EdgesFrom(c) {
		for i := range e.Servers {
			if e.With == kubeconfig && !unknownAuthority(e.Servers[i].Serving) {
				return &e.Servers[i]
			}
		}
	}
	return nil
}

func unknownAuthority(s *v1alpha1.Serving) bool { return s != nil && s.CA == "" }

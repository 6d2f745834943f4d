package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// Bundle is what one end of a connection verifies the other one with.
type Bundle struct {
	// Name says what it is: "the server CA".
	Name string
	// PEM are the certificates. They are empty if System is set: the authorities of the system.
	PEM    string
	System bool
	// Unknown is set if the content is not rendered by kcpctl, but in a Secret of the user, so that nothing can be
	// proven.
	Unknown bool
}

// Mounted is the bundles that components read, as they are rendered.
type Mounted interface {
	// Trusts returns the bundle with which a client verifies the servers of an edge.
	Trusts(client topology.ID, e topology.Edge) (Bundle, error)
	// Accepts returns the bundle with which a server verifies the clients of an edge.
	Accepts(server topology.ID, e topology.Edge) (Bundle, error)
}

// BundleOf returns the bundle of an authority.
func (s *State) BundleOf(ca topology.CA) Bundle {
	return Bundle{Name: fmt.Sprintf("the %s CA", ca), PEM: string(s.CAs[ca].Trusted())}
}

// Prove verifies offline that all connections of a setup can work: each client trusts the certificate that is served
// at the URL that it dials, with the bundle that it reads, and each server accepts the certificate that the client
// presents. It returns all problems. The effort grows with the number of certificates, not with the number of
// connections.
func Prove(t *topology.Topology, s *State, m Mounted, now time.Time) error {
	p := &prover{
		t: t, state: s, mounted: m, now: now, pools: map[string]*x509.CertPool{}, proofs: map[claim]error{},
		certs: map[LeafKey]*x509.Certificate{},
	}
	steps := parallel.Map(runtime.GOMAXPROCS(0), t.Edges(), p.step)
	for _, s := range steps {
		p.claimAll(s)
	}
	p.proveClaims()
	var errs []error
	for _, s := range steps {
		errs = append(errs, p.check(s)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, "compare the certificates in the PKI store with the setup file",
		"these connections of the setup cannot work: %w", errors.Join(errs...))
}

// claim states that a certificate is valid for a usage, if it is verified with a bundle.
type claim struct {
	cert  LeafKey
	by    Bundle
	usage Usage
}

// group is components that verify with the same bundle: one of them, and how many others there are.
type group struct {
	first  topology.ID
	others int
	by     Bundle
}

// step is the proof of an edge: the bundles of its clients and of its servers.
type step struct {
	topology.Edge
	clients, servers []group
	errs             []error
}

type prover struct {
	t       *topology.Topology
	state   *State
	mounted Mounted
	now     time.Time
	// pools are the bundles of the claims, by their PEM.
	pools  map[string]*x509.CertPool
	proofs map[claim]error
	// certs are the certificates of the claims. The hosts in them are compared for each connection.
	certs map[LeafKey]*x509.Certificate
}

// key identifies a certificate of a component. It is empty for kcpctl's own, which is issued for each run.
func (p *prover) key(id topology.ID, cert string) LeafKey { return leafKey(p.t, id, cert) }

func leafKey(t *topology.Topology, id topology.ID, cert string) LeafKey {
	if id == topology.Self {
		return LeafKey{}
	}
	return KeyOf(t.Component(id), cert)
}

// step collects the bundles of an edge.
func (p *prover) step(e topology.Edge) step {
	s := step{Edge: e}
	collect := func(to *[]group, id topology.ID, of func(topology.ID, topology.Edge) (Bundle, error)) {
		b, err := of(id, e)
		if err != nil {
			s.errs = append(s.errs, fmt.Errorf("%s: %w", id, err))
			return
		}
		for i := range *to {
			if (*to)[i].by == b {
				(*to)[i].others++
				return
			}
		}
		*to = append(*to, group{id, 0, b})
	}
	for _, client := range e.Clients {
		collect(&s.clients, client, p.mounted.Trusts)
	}
	var last topology.ID
	for _, server := range e.Servers {
		if server.Component != last { // the addresses of a server follow one another
			collect(&s.servers, server.Component, p.mounted.Accepts)
		}
		last = server.Component
	}
	return s
}

// claimAll adds the claims of an edge.
func (p *prover) claimAll(s step) {
	for _, g := range s.clients {
		for _, server := range s.Servers {
			if server.Serving == nil {
				p.claim(p.key(server.Component, server.Cert), g.by, ServerAuth)
			}
		}
	}
	for _, g := range s.servers {
		for _, client := range s.Clients {
			p.claim(p.key(client, s.Cert), g.by, ClientAuth)
		}
	}
}

func (p *prover) claim(cert LeafKey, by Bundle, u Usage) {
	p.proofs[claim{cert, by, u}] = nil
	if _, ok := p.pools[by.PEM]; !ok {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(by.PEM))
		p.pools[by.PEM] = pool
	}
}

// proveClaims verifies each distinct claim once, in parallel, and parses each certificate once.
func (p *prover) proveClaims() {
	claims := map[LeafKey][]claim{}
	for c := range p.proofs {
		claims[c.cert] = append(claims[c.cert], c)
	}
	keys := slices.Collect(maps.Keys(claims))
	type result struct {
		cert *x509.Certificate
		errs []error
	}
	results := parallel.Map(runtime.GOMAXPROCS(0), keys, func(key LeafKey) result {
		cert, errs := p.prove(key, claims[key])
		return result{cert, errs}
	})
	for i, key := range keys {
		for n, c := range claims[key] {
			p.proofs[c] = results[i].errs[n]
		}
		p.certs[key] = results[i].cert
	}
}

// prove verifies the claims of a certificate, and returns an error for each.
func (p *prover) prove(key LeafKey, claims []claim) (*x509.Certificate, []error) {
	errs := make([]error, len(claims))
	if key == (LeafKey{}) {
		return nil, errs
	}
	pair, ok := p.state.Leaves[key]
	if !ok {
		return nil, slices.Repeat([]error{fmt.Errorf("%s is missing", key.Secret)}, len(claims))
	}
	certs, _, err := parsePair(pair)
	if err != nil {
		return nil, slices.Repeat([]error{fmt.Errorf("%s: %w", key.Secret, err)}, len(claims))
	}
	chain := x509.NewCertPool()
	for _, more := range certs[1:] {
		chain.AddCert(more)
	}
	for i, c := range claims {
		if c.by.Unknown {
			continue
		}
		usage := x509.ExtKeyUsageServerAuth
		if c.usage == ClientAuth {
			usage = x509.ExtKeyUsageClientAuth
		}
		_, err := certs[0].Verify(x509.VerifyOptions{
			Roots: p.pools[c.by.PEM], Intermediates: chain, CurrentTime: p.now, KeyUsages: []x509.ExtKeyUsage{usage},
		})
		if err != nil {
			errs[i] = fmt.Errorf("%s, against %s: %w", key.Secret, c.by.Name, err)
		}
	}
	return certs[0], errs
}

// check returns the problems of an edge: one for each client and each server, no matter how many connections they have.
func (p *prover) check(e step) []error {
	errs := e.errs
	for _, g := range e.clients {
		for _, s := range e.Servers {
			if err := p.checkServer(s, g.by); err != nil {
				clients := andOthers(string(g.first), g.others)
				errs = append(errs, fmt.Errorf("%s does not trust %s at %s: %w", clients, s.Component, s, err))
			}
		}
	}
	for _, g := range e.servers {
		i := slices.IndexFunc(e.Servers, func(s topology.Endpoint) bool { return s.Component == g.first })
		servers := andOthers(fmt.Sprintf("%s at %s", g.first, e.Servers[i]), p.others(e, g))
		for _, client := range e.Clients {
			if err := p.checkClient(client, e.Edge, g.by); err != nil {
				errs = append(errs, fmt.Errorf("%s does not accept %s: %w", servers, client, err))
			}
		}
	}
	return errs
}

// others returns how many other addresses the servers of a group have, or how many servers if there are several groups.
func (p *prover) others(e step, g group) int {
	if len(e.servers) == 1 {
		return len(e.Servers) - 1
	}
	return g.others
}

func (p *prover) checkClient(client topology.ID, e topology.Edge, by Bundle) error {
	key := p.key(client, e.Cert)
	if err := p.proofs[claim{key, by, ClientAuth}]; err != nil {
		return err
	}
	if cert := p.certs[key]; cert != nil && e.AllowedHost != "" {
		if err := cert.VerifyHostname(e.AllowedHost); err != nil {
			return fmt.Errorf("%s: %w", key.Secret, err)
		}
	}
	return nil
}

func (p *prover) checkServer(s topology.Endpoint, by Bundle) error {
	if s.Serving != nil {
		return checkServing(s.Serving, by)
	}
	key := p.key(s.Component, s.Cert)
	if err := p.proofs[claim{key, by, ServerAuth}]; err != nil {
		return err
	}
	if err := p.certs[key].VerifyHostname(s.Host); err != nil {
		return fmt.Errorf("%s: %w", key.Secret, err)
	}
	return nil
}

// checkServing can prove of a certificate of the user's own only that its authorities are in the bundle: the
// certificate is in a Secret, and a check reads it (package check).
func checkServing(s *v1alpha1.Serving, by Bundle) error {
	switch {
	case by.Unknown || s.CA == "" && by.System:
		return nil
	case s.CA == "":
		return fmt.Errorf("the front-proxy presents a certificate of your own, which the authorities of the system verify, "+
			"and the client uses %s: set serving.ca", by.Name)
	}
	own, err := parseCerts([]byte(s.CA))
	if err != nil {
		return fmt.Errorf("serving.ca: %w", err)
	}
	trusted, err := parseCerts([]byte(by.PEM))
	if err != nil {
		return fmt.Errorf("%s: %w", by.Name, err)
	}
	for _, cert := range own {
		if !slices.ContainsFunc(trusted, cert.Equal) {
			return fmt.Errorf("%s does not contain %q of serving.ca", by.Name, cert.Subject.CommonName)
		}
	}
	return nil
}

func andOthers(first string, others int) string {
	switch others {
	case 0:
		return first
	case 1:
		return first + " (and 1 other)"
	}
	return fmt.Sprintf("%s (and %d others)", first, others)
}

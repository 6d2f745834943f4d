package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Prove verifies offline that all connections of a setup can work: each client trusts the certificate that is served
// at the URL that it dials, and each server accepts the certificate that the client presents. It returns all problems.
// The effort grows with the number of certificates, not with the number of connections.
func Prove(t *topology.Topology, s *State, now time.Time) error {
	p := &prover{t: t, state: s, now: now, pools: map[topology.CA]*x509.CertPool{}, proofs: map[claim]error{}}
	if err := p.proveClaims(); err != nil {
		return err
	}
	var errs []error
	for _, e := range t.Edges() {
		errs = append(errs, p.check(e)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, "compare the certificates in the PKI store with the setup file",
		"these connections of the setup cannot work: %w", errors.Join(errs...))
}

// claim states that a certificate is valid for a usage, if it is verified against the bundle of an authority.
type claim struct {
	cert  LeafKey
	by    topology.CA
	usage Usage
}

type prover struct {
	t      *topology.Topology
	state  *State
	now    time.Time
	pools  map[topology.CA]*x509.CertPool
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

// proveClaims verifies each distinct claim once, in parallel.
func (p *prover) proveClaims() error {
	for _, e := range p.t.Edges() {
		for _, client := range e.Clients {
			p.proofs[claim{p.key(client, e.Cert), e.Accept, ClientAuth}] = nil
		}
		for _, s := range e.Servers {
			if s.Serving == nil {
				p.proofs[claim{p.key(s.Component, s.Cert), e.Trust, ServerAuth}] = nil
			}
		}
	}
	for _, ca := range topology.CAs {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(p.state.CAs[ca].Trusted())
		p.pools[ca] = pool
	}
	claims := slices.Collect(maps.Keys(p.proofs))
	type result struct {
		cert *x509.Certificate
		err  error
	}
	results := make([]result, len(claims))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, c := range claims {
		g.Go(func() error {
			results[i].cert, results[i].err = p.prove(c)
			return nil
		})
	}
	err := g.Wait()
	p.certs = make(map[LeafKey]*x509.Certificate, len(claims))
	for i, c := range claims {
		p.proofs[c] = results[i].err
		p.certs[c.cert] = results[i].cert
	}
	return err
}

func (p *prover) prove(c claim) (*x509.Certificate, error) {
	if c.cert == (LeafKey{}) {
		return nil, nil
	}
	pair, ok := p.state.Leaves[c.cert]
	if !ok {
		return nil, fmt.Errorf("%s is missing", c.cert.Secret)
	}
	certs, _, err := parsePair(pair)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.cert.Secret, err)
	}
	chain := x509.NewCertPool()
	for _, more := range certs[1:] {
		chain.AddCert(more)
	}
	usage := x509.ExtKeyUsageServerAuth
	if c.usage == ClientAuth {
		usage = x509.ExtKeyUsageClientAuth
	}
	_, err = certs[0].Verify(x509.VerifyOptions{
		Roots: p.pools[c.by], Intermediates: chain, CurrentTime: p.now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return certs[0], fmt.Errorf("%s, against the %s CA: %w", c.cert.Secret, c.by, err)
	}
	return certs[0], nil
}

// check returns the problems of an edge: one for each client and each server, no matter how many connections they have.
func (p *prover) check(e topology.Edge) []error {
	var errs []error
	for _, s := range e.Servers {
		if err := p.checkServer(s, e.Trust); err != nil {
			errs = append(errs, fmt.Errorf("%s does not trust %s at %s: %w",
				andOthers(string(e.Clients[0]), len(e.Clients)-1), s.Component, s, err))
		}
	}
	first := e.Servers[0]
	servers := andOthers(fmt.Sprintf("%s at %s", first.Component, first), len(e.Servers)-1)
	for _, client := range e.Clients {
		if err := p.checkClient(client, e); err != nil {
			errs = append(errs, fmt.Errorf("%s does not accept %s: %w", servers, client, err))
		}
	}
	return errs
}

func (p *prover) checkClient(client topology.ID, e topology.Edge) error {
	key := p.key(client, e.Cert)
	if err := p.proofs[claim{key, e.Accept, ClientAuth}]; err != nil {
		return err
	}
	if cert := p.certs[key]; cert != nil && e.AllowedHost != "" {
		if err := cert.VerifyHostname(e.AllowedHost); err != nil {
			return fmt.Errorf("%s: %w", key.Secret, err)
		}
	}
	return nil
}

// checkServer cannot prove anything about a certificate of the user's own, which is in a Secret: a check reads it (package check).
func (p *prover) checkServer(s topology.Endpoint, trust topology.CA) error {
	if s.Serving != nil {
		return nil
	}
	key := p.key(s.Component, s.Cert)
	if err := p.proofs[claim{key, trust, ServerAuth}]; err != nil {
		return err
	}
	if err := p.certs[key].VerifyHostname(s.Host); err != nil {
		return fmt.Errorf("%s: %w", key.Secret, err)
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

// Connection is one client and one server of a setup.
type Connection struct {
	Client     topology.ID
	ClientCert LeafKey
	Server     topology.ID
	ServerCert LeafKey
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
				client, leafKey(t, client, e.Cert), s.Component, leafKey(t, s.Component, s.Cert), s.URL, s.Host, e.Trust, e.Accept,
				s.Serving,
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

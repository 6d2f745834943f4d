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

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Prove checks offline that everyone in the setup who dials somebody else will be understood: each client trusts the
// certificate that is served at the URL it dials, and each server accepts the certificate that the client presents.
// It returns all that would fail. The effort grows with the number of certificates, not with that of the connections.
func Prove(t *topology.Topology, s *State, now time.Time) error {
	p := &prover{state: s, now: now, pools: map[CA]*x509.CertPool{}, proofs: map[claim]error{}}
	all := dials(t)
	if err := p.proveClaims(all); err != nil {
		return err
	}
	var errs []error
	for _, d := range all {
		errs = append(errs, p.check(d)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return clierr.New(clierr.Failed, "compare the certificates in the PKI store with the setup file",
		"these connections of the setup cannot work: %w", errors.Join(errs...))
}

// claim is that a certificate is good for a usage in the eyes of one who trusts an authority's bundle.
type claim struct {
	cert  LeafKey
	by    CA
	usage Usage
}

type prover struct {
	state  *State
	now    time.Time
	pools  map[CA]*x509.CertPool
	proofs map[claim]error
	// certs are what the claims are about; the hosts that are looked for in them are compared for each dial.
	certs map[LeafKey]*x509.Certificate
}

// proveClaims verifies each distinct claim once, all at the same time.
func (p *prover) proveClaims(all []dial) error {
	for _, d := range all {
		for _, c := range d.clients {
			p.proofs[claim{c.cert, d.accept, ClientAuth}] = nil
		}
		for _, s := range d.servers {
			p.proofs[claim{s.cert, d.trust, ServerAuth}] = nil
		}
	}
	for _, ca := range CAs() {
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
	if c.cert == (LeafKey{}) { // minted when it is used
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

// check returns what is wrong with a dial: each bad client and each bad server once, however many they meet.
func (p *prover) check(d dial) []error {
	if len(d.clients) == 0 || len(d.servers) == 0 {
		return nil
	}
	var errs []error
	for _, s := range d.servers {
		if err := p.checkServer(s, d.trust); err != nil {
			errs = append(errs, fmt.Errorf("%s does not trust %s at %s: %w", clientsOf(d), s.component, s, err))
		}
	}
	for _, c := range d.clients {
		if err := p.checkClient(c, d); err != nil {
			errs = append(errs, fmt.Errorf("%s does not accept %s: %w", serversOf(d), c.component, err))
		}
	}
	return errs
}

func (p *prover) checkClient(c presented, d dial) error {
	if err := p.proofs[claim{c.cert, d.accept, ClientAuth}]; err != nil {
		return err
	}
	if cert := p.certs[c.cert]; cert != nil && d.allowed != "" {
		if err := cert.VerifyHostname(d.allowed); err != nil {
			return fmt.Errorf("%s: %w", c.cert.Secret, err)
		}
	}
	return nil
}

func (p *prover) checkServer(s served, trust CA) error {
	if err := p.proofs[claim{s.cert, trust, ServerAuth}]; err != nil {
		return err
	}
	if err := p.certs[s.cert].VerifyHostname(s.host); err != nil {
		return fmt.Errorf("%s: %w", s.cert.Secret, err)
	}
	return nil
}

func clientsOf(d dial) string {
	return andOthers(string(d.clients[0].component), len(d.clients)-1)
}

func serversOf(d dial) string {
	first := d.servers[0]
	return andOthers(fmt.Sprintf("%s at %s", first.component, first), len(d.servers)-1)
}

func andOthers(first string, others int) string {
	if others == 0 {
		return first
	}
	return fmt.Sprintf("%s (like %d others)", first, others)
}

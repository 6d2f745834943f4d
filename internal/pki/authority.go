package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// CAs returns the certificate authorities of every setup.
func CAs() []CA { return []CA{ServerCA, ClientCA, RequestHeaderCA, EtcdCA} }

// CAName returns the common name of an authority that kcpctl makes.
func CAName(t *topology.Topology, ca CA) string { return t.Object(string(ca), "ca") }

// authority is a certificate authority ready to be used.
type authority struct {
	name CA
	cert *x509.Certificate
	// key is nil where the authority was brought without one.
	key crypto.Signer
}

// hintReplace is what to do about an authority that does not serve any more.
const hintReplace = "put a valid certificate and key of the authority into the PKI store: what it signed is then issued anew"

// loadAuthority reads an authority and checks that it can be used now.
func loadAuthority(s *State, name CA, now time.Time) (*authority, error) {
	kept, ok := s.CAs[name]
	if !ok {
		return nil, clierr.New(clierr.Failed, "run kcpctl up or kcpctl render first: they make it", "there is no %s CA", name)
	}
	certs, key, err := parseAuthority(kept.Pair)
	if err != nil {
		return nil, clierr.New(clierr.BadInput, hintReplace, "the %s CA: %w", name, err)
	}
	a := &authority{name: name, cert: certs[0], key: key}
	switch {
	case now.After(a.cert.NotAfter):
		err = fmt.Errorf("it expired on %s", a.cert.NotAfter.Format(time.DateOnly))
	case now.Before(a.cert.NotBefore):
		err = fmt.Errorf("it is valid only from %s on", a.cert.NotBefore.Format(time.RFC3339))
	}
	if err != nil {
		return nil, clierr.New(clierr.BadInput, hintReplace, "the %s CA: %w", name, err)
	}
	return a, nil
}

// parseAuthority reads the certificate of an authority and, where there is one, its key.
func parseAuthority(p Pair) (certs []*x509.Certificate, key crypto.Signer, err error) {
	if len(p.Key) == 0 {
		certs, err = parseCerts(p.Cert)
	} else {
		certs, key, err = parsePair(p)
	}
	if err != nil {
		return nil, nil, err
	}
	if c := certs[0]; !c.IsCA || c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, nil, fmt.Errorf("the certificate %q may not sign others", c.Subject.CommonName)
	}
	return certs, key, nil
}

func noKey(a *authority, what string) error {
	return clierr.New(clierr.BadInput, "put the private key of the authority into the PKI store, or a certificate that it issued",
		"%s has to be issued, but the %s CA was brought without its private key", what, a.name)
}

// ensureCAs makes the authorities that are missing. Where certificates of a missing one exist it was lost, not never made.
func (e *ensurer) ensureCAs() error {
	for _, name := range CAs() {
		if _, ok := e.result.State.CAs[name]; !ok {
			if err := e.mayCreate(name, string(name)+" CA"); err != nil {
				return err
			}
			pair, err := newAuthority(e.t, CAName(e.t, name), e.o.Now)
			if err != nil {
				return fmt.Errorf("make the %s CA: %w", name, err)
			}
			e.result.State.CAs[name] = Authority{Pair: pair}
			e.result.CAs = append(e.result.CAs, name)
		}
		a, err := loadAuthority(e.result.State, name, e.o.Now)
		if err != nil {
			return err
		}
		e.authorities[name] = a
		e.expires(string(name)+" CA", a.cert.NotAfter)
	}
	return e.result.State.distinct()
}

// newAuthority makes a certificate authority of a setup.
func newAuthority(t *topology.Topology, cn string, now time.Time) (Pair, error) {
	serial, err := newSerial()
	if err != nil {
		return Pair{}, err
	}
	spec := t.Setup.Spec.PKI
	return selfSign(request{
		cn: cn, algorithm: spec.KeyAlgorithm, serial: serial,
		notBefore: now.Add(-backdate), notAfter: now.Add(spec.CAValidity.Duration),
	})
}

// mayCreate refuses to make a second authority: if it signed something, it is only not where it should be.
func (e *ensurer) mayCreate(ca CA, what string) error {
	i := slices.IndexFunc(e.table, func(c Cert) bool {
		_, ok := e.result.State.Leaves[c.Key()]
		return ok && c.CA == ca
	})
	if i < 0 {
		return nil
	}
	return clierr.New(clierr.Failed,
		"restore it in the PKI store from a backup; to begin with a new one, first delete the certificates of the setup",
		"the %s is lost: %s was issued with it, and a new one would cut off everything that trusts the old", what, e.table[i].Secret)
}

// distinct makes sure that no authority serves two trust domains: with one CA for clients and for proxies, any user could
// claim to be anybody else.
func (s *State) distinct() error {
	for i, a := range CAs() {
		for _, b := range CAs()[i+1:] {
			if slices.ContainsFunc(s.CAs[a].signers(), func(c []byte) bool {
				return slices.ContainsFunc(s.CAs[b].signers(), func(d []byte) bool { return sameCert(c, d) })
			}) {
				return clierr.New(clierr.BadInput, "bring a certificate authority of its own for each",
					"the %s CA and the %s CA are the same certificate", a, b)
			}
		}
	}
	return nil
}

// ensureServiceAccount makes the key pair that signs the tokens of service accounts, or completes its public part.
func (e *ensurer) ensureServiceAccount() error {
	sa := &e.result.State.ServiceAccount
	if len(sa.Key) == 0 {
		if err := e.mayCreate(ClientCA, "service-account key"); err != nil {
			return err
		}
		var err error
		if sa.Key, err = newEncodedKey(e.t.Setup.Spec.PKI.KeyAlgorithm); err != nil {
			return err
		}
	}
	public, err := sa.publicKeys()
	if err != nil {
		return clierr.New(clierr.BadInput, "restore it in the PKI store from a backup", "the service-account key: %w", err)
	}
	sa.Public = public
	return nil
}

// publicKeys are the public keys that verify tokens, each once: that of the key that signs, those that were there, that of
// the key that will sign.
func (sa ServiceAccount) publicKeys() ([]byte, error) {
	first, err := publicOf(sa.Key)
	if err != nil {
		return nil, err
	}
	last, err := publicOf(sa.Next)
	if err != nil {
		return nil, err
	}
	var out []byte
	for block, rest := pem.Decode(slices.Concat(first, sa.Public, last)); block != nil; block, rest = pem.Decode(rest) {
		if encoded := pem.EncodeToMemory(block); !bytes.Contains(out, encoded) {
			out = append(out, encoded...)
		}
	}
	return out, nil
}

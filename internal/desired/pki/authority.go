package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// caName returns the common name of an authority that kcpctl creates.
func caName(t *topology.Topology, ca topology.CA) string { return t.Object(string(ca), "ca") }

// authority is a certificate authority that was parsed and checked.
type authority struct {
	name topology.CA
	cert *x509.Certificate
	// intermediates are the certificates of an authority that another one signed: its own and those above it, without
	// the root. It is empty for a self-signed authority.
	intermediates []*x509.Certificate
	// key is nil without a key in the store: the authority was imported without it, or it is lost.
	key crypto.Signer
}

// The next steps for an authority that is not valid, and for one that is lost.
const (
	hintReplace = "run kcpctl up --replace-authorities, which replaces it by a new one, or first import your own with " +
		"kcpctl certs import --replace-authorities: see Lost and expired CAs in docs/certificates.md"
	hintLost = "restore it from a backup with kcpctl certs import; if it is lost, run kcpctl up --replace-authorities, " +
		"which creates a new one: existing kubeconfigs, certificates or tokens that depend on it then stop working"
)

// loadAuthority parses an authority of a state, and checks that it is valid now.
func loadAuthority(s *State, name topology.CA, now time.Time) (*authority, error) {
	kept, ok := s.CAs[name]
	if !ok {
		return nil, clierr.New(clierr.Failed, "run kcpctl up or kcpctl render first: they create it",
			"the %s CA does not exist", name)
	}
	certs, key, err := parseAuthority(kept.Pair)
	if err != nil {
		return nil, clierr.New(clierr.BadInput, hintReplace, "the %s CA: %w", name, err)
	}
	a := &authority{name: name, cert: certs[0], intermediates: intermediates(certs), key: key}
	switch {
	case now.After(a.cert.NotAfter):
		return nil, clierr.New(clierr.BadInput, hintReplace, "the %s CA: %w on %s", name, errExpired,
			a.cert.NotAfter.Format(time.DateOnly))
	case now.Before(a.cert.NotBefore):
		return nil, clierr.New(clierr.BadInput, "set the clock of this machine, which may be wrong, or wait until then",
			"the %s CA: it is not valid before %s", name, a.cert.NotBefore.Format(time.RFC3339))
	}
	return a, nil
}

// parseAuthority parses the certificate of an authority and its key, if it has one.
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
		return nil, nil, fmt.Errorf("the certificate %q cannot sign other certificates", c.Subject.CommonName)
	}
	return certs, key, nil
}

func noKey(a *authority, what string) error {
	return clierr.New(clierr.BadInput,
		"put the private key of the authority into the PKI store, with kcpctl certs import, or a certificate that it "+
			"issued; if the key is lost, run kcpctl up --replace-authorities, which creates a new authority",
		"%s, but the PKI store has no private key of the %s CA", what, a.name)
}

// errExpired is the error of an authority whose certificate has expired.
var errExpired = errors.New("it expired")

// ensureCAs creates the authorities that are missing. An authority that has certificates already was lost: it is
// replaced only on request, as is one that has expired, or whose private key is lost.
func (e *ensurer) ensureCAs() error {
	for _, name := range topology.CAs {
		if _, ok := e.result.State.CAs[name]; !ok {
			if err := e.mayCreate(name, string(name)+" CA"); err != nil {
				return err
			}
			if err := e.createCA(name); err != nil {
				return err
			}
		}
		a, err := loadAuthority(e.result.State, name, e.o.Now)
		if e.o.Replace && (errors.Is(err, errExpired) || slices.Contains(e.o.Lost, name)) {
			if err = e.createCA(name); err == nil {
				a, err = loadAuthority(e.result.State, name, e.o.Now)
			}
		}
		if err != nil {
			return err
		}
		e.authorities[name] = a
		e.sent[name] = a.sent(e.result.State.CAs[name].Cross)
		e.expires(string(name)+" CA", a.cert.NotAfter)
	}
	return e.result.State.distinct()
}

// createCA creates an authority, and keeps what is trusted besides an earlier one.
func (e *ensurer) createCA(name topology.CA) error {
	pair, err := newAuthority(e.t, caName(e.t, name), e.o.Now)
	if err != nil {
		return fmt.Errorf("create the %s CA: %w", name, err)
	}
	e.result.State.CAs[name] = Authority{Pair: pair, Bundle: e.result.State.CAs[name].Bundle}
	e.result.CAs = append(e.result.CAs, name)
	return nil
}

// newAuthority creates a self-signed certificate authority of a setup.
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

// mayCreate fails if certificates of an authority exist: then the authority is not missing, but lost.
func (e *ensurer) mayCreate(ca topology.CA, what string) error {
	if e.o.Replace {
		return nil
	}
	i := slices.IndexFunc(e.table, func(c Cert) bool {
		_, ok := e.result.State.Leaves[c.Key()]
		return ok && c.CA == ca
	})
	if i < 0 {
		return nil
	}
	return clierr.New(clierr.Failed, hintLost,
		"the %s is lost: %s was issued with it, and everything that trusts it would reject a new one",
		what, e.table[i].Secret)
}

// distinct fails if two trust domains have the same authority: with one CA for clients and for proxies, each user could
// impersonate all others.
func (s *State) distinct() error {
	for i, a := range topology.CAs {
		for _, b := range topology.CAs[i+1:] {
			if slices.ContainsFunc(s.CAs[a].signers(), func(c []byte) bool {
				return slices.ContainsFunc(s.CAs[b].signers(), func(d []byte) bool { return sameCert(c, d) })
			}) {
				return clierr.New(clierr.BadInput, "use a different certificate authority for each",
					"the %s CA and the %s CA are the same certificate", a, b)
			}
		}
	}
	return s.acceptsOnlyItsOwn()
}

// ensureServiceAccount creates the key that signs the tokens of service accounts, if it is missing, and completes the
// public keys.
func (e *ensurer) ensureServiceAccount() error {
	sa := &e.result.State.ServiceAccount
	if len(sa.Key) == 0 {
		if err := e.mayCreate(topology.ClientCA, "service-account key"); err != nil {
			return err
		}
		var err error
		if sa.Key, err = newEncodedKey(e.t.Setup.Spec.PKI.KeyAlgorithm); err != nil {
			return err
		}
	}
	public, err := sa.publicKeys()
	if err != nil {
		return clierr.New(clierr.BadInput, "restore it in the PKI store from a backup",
			"the service-account key: %w", err)
	}
	sa.Public = public
	return nil
}

// publicKeys returns the public keys that verify tokens, each once: the one of the key that signs, the existing ones,
// and the one of the key that will sign.
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

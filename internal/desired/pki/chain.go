package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// firstCert returns the first of some PEM certificates: the one that signs. The others are its chain.
func firstCert(data []byte) []byte {
	_, rest := pem.Decode(data)
	if more, _ := pem.Decode(rest); more == nil {
		return data // byte for byte as it was supplied
	}
	return data[:len(data)-len(rest)]
}

// intermediates returns the certificates of an authority that another one signed, without a self-signed root: who
// trusts the root has it already.
func intermediates(certs []*x509.Certificate) []*x509.Certificate {
	if selfSigned(certs[0]) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(certs), selfSigned)
}

func selfSigned(c *x509.Certificate) bool {
	return bytes.Equal(c.RawIssuer, c.RawSubject) && c.CheckSignatureFrom(c) == nil
}

// sent returns the certificates that servers send after their own. An intermediate authority sends itself and its
// chain, for clients that trust only the root. The cross-signed certificate is for clients that trust only the previous
// authority. Components need none of them, because they trust the authority itself: this is for existing kubeconfigs.
func (a *authority) sent(cross []byte) []*x509.Certificate {
	if a.name != topology.ServerCA {
		return nil
	}
	more, err := parseCerts(cross)
	if err != nil {
		more = nil // there is none
	}
	return slices.Concat(a.intermediates, more)
}

// chain returns a certificate of the authority with the chain that servers send. It keeps the certificates above the
// authority that a user supplied with it, and drops the others, such as the certificates of a finished rotation.
func (a *authority) chain(p Pair, sent []*x509.Certificate) Pair {
	certs, err := parseCerts(p.Cert)
	if err != nil {
		return p
	}
	want := append(certs[:1:1], sent...)
	top := a.cert
	for range certs[1:] { // authorities can have signed each other
		i := slices.IndexFunc(certs[1:], func(c *x509.Certificate) bool {
			return !samePublicKey(c.PublicKey, top.PublicKey) && top.CheckSignatureFrom(c) == nil
		})
		if i < 0 {
			break
		}
		top = certs[1:][i]
		if !slices.ContainsFunc(want[1:], top.Equal) {
			want = append(want, top)
		}
	}
	if slices.EqualFunc(certs, want, (*x509.Certificate).Equal) {
		return p // byte for byte as it was supplied
	}
	return Pair{Cert: encodeCerts(want), Key: p.Key}
}

func encodeCerts(certs []*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: c.Raw})...)
	}
	return out
}

// checkChain fails if the certificates after an authority are not its chain. They are sent, but not trusted.
func checkChain(ca topology.CA, data []byte) error {
	certs, err := parseCerts(data)
	if err != nil {
		return err
	}
	for i, c := range certs[1:] {
		if certs[i].CheckSignatureFrom(c) == nil {
			continue
		}
		return clierr.New(clierr.BadInput,
			fmt.Sprintf("after the certificate of the authority, leave only the certificates above it; "+
				"further certificates to trust belong into ca/%s.bundle", ca),
			"the %s CA: %q, certificate %d of its file, has not signed the one before it, %q",
			ca, c.Subject.CommonName, i+2, certs[i].Subject.CommonName)
	}
	return nil
}

// acceptsOnlyItsOwn fails if a server that verifies clients of one trust domain would also accept clients of another
// one. Go accepts an intermediate authority as an anchor, so that the authorities of several trust domains can have one
// root as long as servers do not trust that root. Otherwise every user with a client certificate could call as a
// front-proxy does, which acts for others, and kcp could only tell them by their names (kcp#4032). Clients may trust
// such a root, because the certificates of the other authorities cannot serve.
func (s *State) acceptsOnlyItsOwn() error {
	for _, by := range []topology.CA{topology.ClientCA, topology.RequestHeaderCA, topology.EtcdCA} {
		anchors, err := parseCerts(s.CAs[by].Trusted())
		if err != nil {
			continue // it does not exist
		}
		for _, other := range topology.CAs {
			for _, signer := range s.CAs[other].signers() {
				chain, err := parseCerts(signer)
				if err != nil || other == by {
					continue
				}
				if anchor := above(chain, anchors); anchor != nil {
					return clierr.New(clierr.BadInput,
						fmt.Sprintf("for the %s CA, use a certificate that is above no other authority, such as an "+
							"intermediate of its own", by),
						"servers that trust the %s CA would accept every certificate of the %s CA, "+
							"because %q is above it",
						by, other, anchor.Subject.CommonName)
				}
			}
		}
	}
	return nil
}

// above returns the anchor that an authority, the first of a chain, is or was signed by, directly or through its chain.
func above(chain, anchors []*x509.Certificate) *x509.Certificate {
	for _, c := range chain {
		for _, anchor := range anchors {
			if c.Equal(anchor) || c.CheckSignatureFrom(anchor) == nil {
				return anchor
			}
		}
	}
	return nil
}

package pki

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/cloudflare/cfssl/config"
	"github.com/cloudflare/cfssl/signer"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// backdate makes a new certificate valid on machines whose clocks are behind.
const backdate = 5 * time.Minute

// request describes a certificate to sign.
type request struct {
	cn        string
	orgs      []string
	hosts     []string
	usages    []Usage
	algorithm v1alpha1.KeyAlgorithm
	serial    *big.Int
	// notAfter is limited to that of the authority.
	notBefore, notAfter time.Time
}

func (c Cert) request(alg v1alpha1.KeyAlgorithm, serial *big.Int, now time.Time) request {
	return request{
		cn: c.CN, orgs: c.Orgs, hosts: c.Hosts, usages: c.Usages, algorithm: alg, serial: serial,
		notBefore: now.Add(-backdate), notAfter: now.Add(c.Validity),
	}
}

// newSerial returns a random serial number of 128 bits.
func newSerial() (*big.Int, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("create a serial number: %w", err)
	}
	return new(big.Int).SetBytes(b[:]), nil
}

// issue creates a key and a certificate for it, signed by the authority.
func (a *authority) issue(r request) (Pair, error) {
	if a.key == nil {
		return Pair{}, fmt.Errorf("the %s CA has no private key", a.name)
	}
	if r.notAfter.After(a.cert.NotAfter) {
		r.notAfter = a.cert.NotAfter
	}
	key, err := newKey(r.algorithm)
	if err != nil {
		return Pair{}, err
	}
	usages := []string{"digital signature"}
	if _, ok := key.(*rsa.PrivateKey); ok {
		usages = append(usages, "key encipherment")
	}
	for _, u := range r.usages {
		usages = append(usages, string(u))
	}
	return sign(r, key, a.key, a.cert, config.SigningProfile{Usage: usages})
}

// selfSign creates a certificate authority. The only authority that it can sign is its successor.
func selfSign(r request) (Pair, error) {
	key, err := newKey(r.algorithm)
	if err != nil {
		return Pair{}, err
	}
	return sign(r, key, key, nil, config.SigningProfile{
		Usage:        []string{"digital signature", "cert sign", "crl sign"},
		CAConstraint: config.CAConstraint{IsCA: true, MaxPathLen: 1},
	})
}

// crossSign signs the key of another authority, for the time in which both are valid.
func (a *authority) crossSign(other *authority) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	r := request{
		cn: other.cert.Subject.CommonName, serial: serial, notBefore: other.cert.NotBefore, notAfter: other.cert.NotAfter,
	}
	if a.cert.NotAfter.Before(r.notAfter) {
		r.notAfter = a.cert.NotAfter
	}
	pair, err := sign(r, other.key, a.key, a.cert, config.SigningProfile{
		Usage:        []string{"digital signature", "cert sign", "crl sign"},
		CAConstraint: config.CAConstraint{IsCA: true, MaxPathLenZero: true},
	})
	return pair.Cert, err
}

// sign creates a certificate for a key. cfssl derives the fields of the certificate from the profile. A signing
// request is not needed, because the same process creates the key and signs. Without the certificate of an authority
// the result is self-signed.
func sign(r request, key, by crypto.Signer, ca *x509.Certificate, profile config.SigningProfile) (Pair, error) {
	template := &x509.Certificate{
		SerialNumber:       r.serial,
		Subject:            pkix.Name{CommonName: r.cn, Organization: r.orgs},
		PublicKey:          key.Public(),
		SignatureAlgorithm: signer.DefaultSigAlgo(by),
	}
	for _, h := range r.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	if err := signer.FillTemplate(template, &profile, &profile, r.notBefore, r.notAfter); err != nil {
		return Pair{}, err
	}
	if ca == nil {
		ca = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, template.PublicKey, by)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}), Key: keyPEM}, nil
}

// MintSpec describes a certificate for Mint.
type MintSpec struct {
	CN        string
	Orgs      []string
	Algorithm v1alpha1.KeyAlgorithm
	Validity  time.Duration
	// CA signs it. Default: the client CA.
	CA topology.CA
	// Hosts are the host names that servers require in it.
	Hosts []string
}

// Mint issues a client certificate that is not stored: for kcpctl itself, or for a kubeconfig on request.
func Mint(s *State, m MintSpec, now time.Time) (Pair, error) {
	a, err := loadAuthority(s, cmp.Or(m.CA, topology.ClientCA), now)
	if err != nil {
		return Pair{}, err
	}
	if a.key == nil {
		return Pair{}, noKey(a, "a certificate for "+m.CN)
	}
	serial, err := newSerial()
	if err != nil {
		return Pair{}, err
	}
	c := Cert{CN: m.CN, Orgs: m.Orgs, Hosts: m.Hosts, Usages: []Usage{ClientAuth}, Validity: m.Validity}
	p, err := a.issue(c.request(m.Algorithm, serial, now))
	if err != nil {
		return Pair{}, fmt.Errorf("issue a certificate for %s: %w", m.CN, err)
	}
	return p, nil
}

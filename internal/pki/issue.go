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
)

// backdate lets a certificate be used at once on machines whose clocks are behind.
const backdate = 5 * time.Minute

// request is what to certify.
type request struct {
	cn        string
	orgs      []string
	hosts     []string
	usages    []Usage
	algorithm v1alpha1.KeyAlgorithm
	serial    *big.Int
	// notAfter is cut to the authority's.
	notBefore, notAfter time.Time
}

func (c Cert) request(alg v1alpha1.KeyAlgorithm, serial *big.Int, now time.Time) request {
	return request{
		cn: c.CN, orgs: c.Orgs, hosts: c.Hosts, usages: c.Usages, algorithm: alg, serial: serial,
		notBefore: now.Add(-backdate), notAfter: now.Add(c.Validity),
	}
}

// newSerial draws a serial number of 128 bits.
func newSerial() (*big.Int, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return new(big.Int).SetBytes(b[:]), nil
}

// issue makes a key and lets the authority certify it.
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

// selfSign makes a certificate authority. The only other one that it ever signs is its successor.
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

// crossSign certifies another authority, for as long as both are valid.
func (a *authority) crossSign(other *authority) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	r := request{cn: other.cert.Subject.CommonName, serial: serial, notBefore: other.cert.NotBefore, notAfter: other.cert.NotAfter}
	if a.cert.NotAfter.Before(r.notAfter) {
		r.notAfter = a.cert.NotAfter
	}
	pair, err := sign(r, other.key, a.key, a.cert, config.SigningProfile{
		Usage:        []string{"digital signature", "cert sign", "crl sign"},
		CAConstraint: config.CAConstraint{IsCA: true, MaxPathLenZero: true},
	})
	return pair.Cert, err
}

// sign certifies a key. cfssl makes a certificate's fields of the profile. There is no signing
// request, which a signer would make and check: who asks for the certificate and who signs it are one. Without an
// authority's certificate it signs itself.
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

// MintSpec says what a certificate that is not kept is for.
type MintSpec struct {
	CN        string
	Orgs      []string
	Algorithm v1alpha1.KeyAlgorithm
	Validity  time.Duration
	// CA signs it. Default: the client CA.
	CA CA
	// Hosts are what servers look for in it.
	Hosts []string
}

// Mint issues a client certificate that nothing keeps: for kcpctl itself, or for a kubeconfig that
// somebody asks for.
func Mint(s *State, m MintSpec, now time.Time) (Pair, error) {
	a, err := loadAuthority(s, cmp.Or(m.CA, ClientCA), now)
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

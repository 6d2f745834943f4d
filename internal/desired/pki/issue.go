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

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// authorityUsage is the key usage of certificate authorities.
const authorityUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign

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
	// notAfter is limited to the expiry of the authority.
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
	template := &x509.Certificate{KeyUsage: x509.KeyUsageDigitalSignature}
	if _, ok := key.(*rsa.PrivateKey); ok {
		template.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	for _, u := range r.usages {
		template.ExtKeyUsage = append(template.ExtKeyUsage, u.extKeyUsage())
	}
	for _, h := range r.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return sign(r, template, key, a.key, a.cert)
}

// selfSign creates a certificate authority. The only authority that it can sign is its successor.
func selfSign(r request) (Pair, error) {
	key, err := newKey(r.algorithm)
	if err != nil {
		return Pair{}, err
	}
	return sign(r, &x509.Certificate{IsCA: true, KeyUsage: authorityUsage, MaxPathLen: 1}, key, key, nil)
}

// crossSign signs the key of another authority, for the time in which both are valid. The certificate has exactly the
// bytes of the name of that authority: by these, clients look for an issuer.
func (a *authority) crossSign(other *authority) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	r := request{serial: serial, notBefore: other.cert.NotBefore, notAfter: other.cert.NotAfter}
	if a.cert.NotAfter.Before(r.notAfter) {
		r.notAfter = a.cert.NotAfter
	}
	template := &x509.Certificate{IsCA: true, KeyUsage: authorityUsage, MaxPathLenZero: true,
		RawSubject: other.cert.RawSubject, SubjectKeyId: other.cert.SubjectKeyId}
	pair, err := sign(r, template, other.key, a.key, a.cert)
	return pair.Cert, err
}

// sign creates a certificate for a key from a template with the usages. The RawSubject of the template, if it has one,
// replaces the name of the request. Without the certificate of an authority the result is self-signed.
func sign(r request, template *x509.Certificate, key, by crypto.Signer, ca *x509.Certificate) (Pair, error) {
	template.SerialNumber = r.serial
	template.Subject = pkix.Name{CommonName: r.cn, Organization: r.orgs}
	template.NotBefore, template.NotAfter = r.notBefore.UTC(), r.notAfter.UTC()
	template.BasicConstraintsValid = true
	if ca == nil {
		ca = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), by)
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
		return Pair{}, noKey(a, "a certificate for "+m.CN+" must be issued")
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

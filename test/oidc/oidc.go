// Package oidc serves a real OpenID Connect issuer for tests: discovery, public keys and signed tokens, by https with
// its own CA.
package oidc

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"
)

// ClientID is the audience of the tokens.
const ClientID = "kcp"

const (
	keyID    = "test"
	keyBits  = 2048
	validity = time.Hour
)

// Issuer is a running issuer.
type Issuer struct {
	// URL is its issuer URL.
	URL string
	// CA is the certificate in PEM format that its serving certificate is verified with.
	CA []byte

	key *rsa.PrivateKey
}

// Start starts an issuer that listens on a host, such as 127.0.0.1, and stops it when the test ends.
func Start(t testing.TB, host string) *Issuer {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	require.NoError(t, err)
	ca, serving := Certificates(t, host)
	handler := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: keyID, Algorithm: oidc.RS256}}}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close() // that of httptest listens on 127.0.0.1 only
	server.Listener = l
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serving}, MinVersion: tls.VersionTLS12}
	handler.SetIssuer("https://" + l.Addr().String())
	server.StartTLS()
	t.Cleanup(server.Close)
	return &Issuer{URL: "https://" + l.Addr().String(), CA: ca, key: key}
}

// Token returns a signed token for a user (the claim sub). Other claims, such as groups, replace those of every token.
func (i *Issuer) Token(t testing.TB, user string, claims map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": i.URL, "aud": ClientID, "sub": user, "iat": time.Now().Unix(), "exp": time.Now().Add(validity).Unix(),
	}
	maps.Copy(all, claims)
	raw, err := json.Marshal(all)
	require.NoError(t, err)
	return oidctest.SignIDToken(i.key, keyID, oidc.RS256, string(raw))
}

// Certificates returns a new CA in PEM format, and a serving certificate for a host, such as kcp.example.com or
// 127.0.0.1.
func Certificates(t testing.TB, host string) (ca []byte, serving tls.Certificate) {
	t.Helper()
	caKey, servingKey := newKey(t), newKey(t)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer-ca"}, NotAfter: time.Now().Add(validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, NotAfter: time.Now().Add(validity),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{host}
	}
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, caKey.Public(), caKey)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, servingKey.Public(), caKey)
	require.NoError(t, err)
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	return ca, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: servingKey}
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

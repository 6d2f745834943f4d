package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var servingNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// selfSigned returns a certificate for a host that is its own authority, and its key.
func selfSigned(t *testing.T, host string, until time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func TestOwnServing(t *testing.T) {
	later := servingNow.Add(time.Hour)
	cert, key := selfSigned(t, "kcp.example.com", later)
	other, otherKey := selfSigned(t, "kcp.example.com", later)
	elsewhere, elsewhereKey := selfSigned(t, "other.example.com", later)
	expired, expiredKey := selfSigned(t, "kcp.example.com", servingNow.Add(-time.Hour))
	pair := func(cert, key []byte) map[string][]byte { return map[string][]byte{"tls.crt": cert, "tls.key": key} }
	for name, tc := range map[string]struct {
		ca     []byte
		secret map[string][]byte
		status Status
		cause  string
	}{
		"valid":               {cert, pair(cert, key), OK, ""},
		"missing":             {cert, nil, OK, ""}, // another check reports it
		"of another key":      {cert, pair(cert, otherKey), Fail, "Secret public, which front-proxy/main serves: tls: private key does not match public key"},
		"no certificate":      {cert, pair(nil, key), Fail, "failed to find any PEM data"},
		"of another CA":       {cert, pair(other, otherKey), Fail, "is not accepted for kcp.example.com: x509: certificate signed by unknown authority"},
		"for another host":    {elsewhere, pair(elsewhere, elsewhereKey), Fail, "valid for other.example.com, not kcp.example.com"},
		"expired":             {expired, pair(expired, expiredKey), Fail, "certificate has expired"},
		"of no known CA":      {nil, pair(cert, key), Warn, "is not accepted for kcp.example.com"},
		"a different purpose": {cert, map[string][]byte{"ca.crt": cert}, Fail, "failed to find any PEM data"},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTopology(t, fmt.Sprintf("  frontProxies:\n  - {name: main, external: {hostname: kcp.example.com}, serving: {secret: public, ca: %q}}\n", tc.ca))
			s := &Subject{Topology: top, Now: func() time.Time { return servingNow }}
			got := ownServing(t.Context(), s, secrets{data: map[string]map[string][]byte{"public": tc.secret}})
			if got.status == "" {
				got.status = OK
			}
			require.Equal(t, tc.status, got.status, got.causes)
			require.Contains(t, strings.Join(got.causes, "\n"), tc.cause)
		})
	}
	got := ownServing(t.Context(), &Subject{Topology: newTopology(t, "")}, secrets{})
	require.Equal(t, Skipped, got.status)
}

// secrets is a cluster with Secrets only.
type secrets struct {
	Cluster
	data map[string]map[string][]byte
}

func (secrets) Name() string { return "default" }

func (s secrets) Secret(_ context.Context, name string) (map[string][]byte, error) {
	return s.data[name], nil
}

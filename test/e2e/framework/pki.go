package framework

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"testing"

	"github.com/stretchr/testify/require"
)

// Fingerprints returns checksums of the authorities to compare: a failed comparison prints its operands.
func (s *Setup) Fingerprints(t *testing.T) map[string]string {
	t.Helper()
	authorities, _ := s.Keys(t)
	require.NotEmpty(t, authorities)
	out := map[string]string{}
	for name, content := range authorities {
		sum := sha256.Sum256(content)
		out[name] = hex.EncodeToString(sum[:])
	}
	return out
}

// KeepsKeys requires that no component can read the private key of an authority.
func KeepsKeys(t *testing.T, s *Setup) {
	authorities, readable := s.Keys(t)
	secret := map[string]bool{}
	for name, content := range authorities {
		for _, public := range publicKeys(t, name, content) {
			secret[public] = true
		}
	}
	require.Len(t, secret, 4, "server, client, requestheader and etcd")
	found := 0
	for name, content := range readable {
		for _, public := range publicKeys(t, name, content) {
			found++
			require.False(t, secret[public], "%s holds the private key of an authority", name)
		}
	}
	require.Greater(t, found, 4, "components have private keys")
}

// publicKeys returns the public keys of the private keys in PEM data, in any encoding.
func publicKeys(t *testing.T, name string, content []byte) []string {
	t.Helper()
	var out []string
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if !bytes.HasSuffix([]byte(block.Type), []byte("PRIVATE KEY")) {
			continue
		}
		key := privateKey(block.Bytes)
		require.NotNil(t, key, "%s holds a private key that cannot be read", name)
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		require.NoError(t, err)
		out = append(out, string(der))
	}
	return out
}

func privateKey(der []byte) crypto.Signer {
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil
	}
	return key.(crypto.Signer)
}

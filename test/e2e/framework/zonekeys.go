package framework

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// HoldNoForeignKeys reads every Secret and ConfigMap of the places other than home. None has the private key of an
// authority, and those of a place without a shard have no service-account key.
func (z *Zones) HoldNoForeignKeys(t *testing.T, s *Setup) {
	stored, readable := s.Keys(t)
	authorities, serviceAccounts := map[string]string{}, map[string]string{}
	for name, content := range stored {
		for _, public := range keysWithin(t, name, content) {
			authorities[public] = name
		}
	}
	require.GreaterOrEqual(t, len(authorities), 4, "server, client, requestheader and etcd")
	for name, content := range readable {
		for _, public := range authoritiesWithin(t, name, content) {
			authorities[public] = name
		}
		if strings.HasPrefix(name, Home+"/"+s.Name+"-service-account/") {
			for _, public := range keysWithin(t, name, content) {
				serviceAccounts[public] = name
			}
		}
	}
	require.NotEmpty(t, serviceAccounts)

	found := map[string]int{}
	for name, content := range readable {
		place, _, _ := strings.Cut(name, "/")
		if place == Home {
			continue
		}
		for _, public := range keysWithin(t, name, content) {
			found[place]++
			require.Empty(t, authorities[public], "%s has the private key of an authority", name)
			if place == shardless {
				require.Empty(t, serviceAccounts[public], "%s has a service-account key, and no shard runs there", name)
			}
		}
	}
	require.Len(t, found, len(z.Places)-1, "components of each place have private keys: %v", found)
}

// encodedPEM matches PEM data that is encoded again, as in kubeconfigs.
var encodedPEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/]+=*`)

// within returns PEM data, and the PEM data that is encoded in it.
func within(t *testing.T, name string, content []byte) [][]byte {
	t.Helper()
	all := [][]byte{content}
	for _, encoded := range encodedPEM.FindAll(content, -1) {
		decoded, err := base64.StdEncoding.DecodeString(string(encoded))
		require.NoError(t, err, name)
		all = append(all, decoded)
	}
	return all
}

// keysWithin returns the public keys of all private keys in the value of a Secret or ConfigMap.
func keysWithin(t *testing.T, name string, content []byte) []string {
	t.Helper()
	var out []string
	for _, data := range within(t, name, content) {
		out = append(out, publicKeys(t, name, data)...)
	}
	return out
}

// authoritiesWithin returns the public keys of all certificates of authorities in a value.
func authoritiesWithin(t *testing.T, name string, content []byte) []string {
	t.Helper()
	var out []string
	for _, data := range within(t, name, content) {
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			if block.Type != "CERTIFICATE" {
				continue
			}
			certificate, err := x509.ParseCertificate(block.Bytes)
			require.NoError(t, err, name)
			if certificate.IsCA {
				der, err := x509.MarshalPKIXPublicKey(certificate.PublicKey)
				require.NoError(t, err)
				out = append(out, string(der))
			}
		}
	}
	return out
}

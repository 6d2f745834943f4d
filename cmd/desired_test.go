package cmd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// clientOnlyCA writes a server CA that may sign certificates of clients only: clients reject every server certificate
// of it.
func clientOnlyCA(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients only"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(10 * 365 * day), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "ca"), 0o700))
	for name, block := range map[string]*pem.Block{
		"server.crt": {Type: "CERTIFICATE", Bytes: cert}, "server.key": {Type: "PRIVATE KEY", Bytes: der},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ca", name), pem.EncodeToMemory(block), 0o600))
	}
}

// What up refuses because the certificates do not fit together, no other command renders or saves.
func TestNoCommandRendersCertificatesThatDoNotFit(t *testing.T) {
	for name, args := range map[string][]string{
		"render":             {"render"},
		"render into files":  {"render", "--output-dir", "OUT"},
		"client dry run":     {"up", "--dry-run=client"},
		"renewal of a store": {"certs", "renew", "--offline"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, pki, out := filepath.Join(dir, "kcp.yaml"), filepath.Join(dir, "pki"), filepath.Join(dir, "out")
			require.NoError(t, os.WriteFile(file, []byte("apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\n"), 0o600))
			clientOnlyCA(t, pki)
			before := files(t, pki)
			args = append(args, "-f", file, "--pki-dir", pki)
			for i := range args {
				if args[i] == "OUT" {
					args[i] = out
				}
			}
			streams, stdout, _ := ui.Fake("", 0, 0)
			c := newRootCmd(&Env{Streams: streams, Now: time.Now, Getenv: func(string) string { return "" }})
			c.SetArgs(args)
			err := c.ExecuteContext(t.Context())
			require.ErrorContains(t, err, "root-shard")
			require.ErrorContains(t, err, "does not trust")
			require.Equal(t, clierr.Failed, clierr.Code(err))
			require.NotEmpty(t, clierr.Hint(err))
			require.Empty(t, stdout.String())
			require.NoDirExists(t, out)
			require.Equal(t, before, files(t, pki), "nothing is written")
		})
	}
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		out[path] = string(content)
		return err
	}))
	return out
}

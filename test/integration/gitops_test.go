package integration

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/apiserver"
)

// The way of docs/ci.md through a repository: what is rendered, encrypted, committed, decrypted and applied by kubectl
// does not differ from the setup. Secrets are in no other files than the ones to encrypt.
func TestManifestsThroughARepository(t *testing.T) {
	apiserver.Need(t)
	bin, err := apiserver.Binaries(t.Context(), "kubectl")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/ci.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "kcpctl render --pki-dir pki --annotate argocd --output-dir rendered\n")
	require.Contains(t, string(page), "`sops encrypt --in-place --encrypted-regex '^data$' FILE`")
	require.Contains(t, string(page), "kubectl apply --server-side -R -f rendered\n")

	e := newExample(t, "sharded")
	pki, rendered := filepath.Join(t.TempDir(), "pki"), filepath.Join(t.TempDir(), "rendered")
	e.kcpctl(t, "render", "--pki-dir", pki, "--annotate", "argocd", "--output-dir", rendered)
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	secrets := replaceFiles(t, rendered, func(plain []byte) []byte {
		var out bytes.Buffer
		w, err := age.Encrypt(&out, identity.Recipient())
		require.NoError(t, err)
		_, err = w.Write(plain)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return out.Bytes()
	})
	require.NotZero(t, secrets)
	for name, text := range filesIn(t, rendered) {
		require.NotContains(t, string(text), "kind: Secret", name)
		require.NotContains(t, string(text), "PRIVATE KEY", name)
	}
	require.Equal(t, secrets, replaceFiles(t, rendered, func(encrypted []byte) []byte {
		r, err := age.Decrypt(bytes.NewReader(encrypted), identity)
		require.NoError(t, err)
		plain, err := io.ReadAll(r)
		require.NoError(t, err)
		return plain
	}))

	apply := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), "--kubeconfig", e.kubeconfig,
		"apply", "--server-side", "-R", "-f", rendered)
	out, err := apply.CombinedOutput()
	require.NoError(t, err, string(out))
	e.kcpctl(t, "diff", "--pki-dir", pki, "--kubeconfig", e.kubeconfig) // exit code 1 if there are differences
}

// filesIn returns the files in a directory by their paths.
func filesIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[path], err = os.ReadFile(path)
		return err
	}))
	return files
}

// replaceFiles replaces the files of Secrets, and returns their number.
func replaceFiles(t *testing.T, dir string, change func([]byte) []byte) int {
	t.Helper()
	n := 0
	for path, content := range filesIn(t, dir) {
		if strings.HasPrefix(filepath.Base(path), "secret-") {
			require.NoError(t, os.WriteFile(path, change(content), 0o600))
			n++
		}
	}
	return n
}

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
	require.Contains(t, string(page), "kubectl apply --server-side -R -f rendered/default\n")

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

	out, err := e.apply(t, bin, filepath.Join(rendered, "default"))
	require.NoError(t, err, out)
	e.kcpctl(t, "diff", "--pki-dir", pki, "--kubeconfig", e.kubeconfig) // exit code 1 if there are differences
}

// kubectl applies the manifests of setups with objects in workspaces of kcp without a mistake, and none of these
// objects. It learns the kind of an agent's objects from the first apply, as docs/ci.md says.
func TestManifestsBesideWorkspaces(t *testing.T) {
	apiserver.Need(t)
	bin, err := apiserver.Binaries(t.Context(), "kubectl")
	require.NoError(t, err)
	for _, name := range []string{"tenants", "agent"} {
		t.Run(name, func(t *testing.T) {
			e, dir := newExample(t, name), t.TempDir()
			e.kcpctl(t, "render", "--pki-dir", t.TempDir(), "--output-dir", dir)
			clusters, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
			require.NoError(t, err)
			for _, cluster := range clusters {
				out, err := e.apply(t, bin, cluster)
				if err != nil && name == "agent" {
					require.Contains(t, out, `no matches for kind "PublishedResource"`)
					out, err = e.apply(t, bin, cluster)
				}
				require.NoError(t, err, out)
			}
			for o := range e.written(t) {
				require.NotContains(t, o, "clusterrolebindings /"+e.name+":")
			}
		})
	}
}

// apply applies the manifests in a directory, and returns what kubectl prints.
func (e *example) apply(t *testing.T, bin, dir string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), "--kubeconfig", e.kubeconfig,
		"apply", "--server-side", "-R", "-f", dir)
	out, err := c.CombinedOutput()
	return string(out), err
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

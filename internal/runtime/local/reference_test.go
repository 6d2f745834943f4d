package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// Secrets and ConfigMaps that the setup does not create are directories next to the setup file.
func TestReferences(t *testing.T) {
	dir := t.TempDir()
	for path, content := range map[string]string{
		"secrets/tokens/tokens.csv": "token,bob,1", "configmaps/login/ca.crt": "certificate", "secrets/tokens/below/ignored": "",
	} {
		file := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	ours := func(kind, name string) (*unstructured.Unstructured, error) {
		if name != "ours" {
			return nil, nil
		}
		return &unstructured.Unstructured{Object: map[string]any{"kind": kind, "data": map[string]any{"key": "b3Vycw=="}}}, nil
	}
	find := (&Runtime{options: Options{References: dir}}).orUser(ours)
	w := &workload{name: "demo", mounts: []mount{{path: "/etc/kcp", sources: []source{
		{kindSecret, "ours", []corev1.KeyToPath{{Key: "key", Path: "ours"}}, false},
		{kindSecret, "tokens", []corev1.KeyToPath{{Key: "tokens.csv", Path: "config/tokens.csv"}}, false},
		{kindConfigMap, "login", nil, false},
	}}}}
	got, err := w.files(find)
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{
		"/etc/kcp/ours": []byte("ours"), "/etc/kcp/config/tokens.csv": []byte("token,bob,1"), "/etc/kcp/ca.crt": []byte("certificate"),
	}, got)

	w.mounts[0].sources[1].items[0].Key = "other.csv"
	_, err = w.files(find)
	require.EqualError(t, err, "Secret tokens, which Deployment demo mounts: no key other.csv")
	w.mounts[0].sources[1].name = "missing"
	_, err = w.files(find)
	require.EqualError(t, err, "Secret missing, which Deployment demo mounts, is not part of the setup")
	require.Contains(t, clierr.Hint(err), "secrets/missing")
	_, err = w.files((&Runtime{}).orUser(ours))
	require.ErrorContains(t, err, "is not part of the setup", "without a directory")
}

// A front-proxy runs with the files of a Secret of the user, and is restarted when they change.
func TestUpUsesReferences(t *testing.T) {
	m := newMachine(t)
	tokens := filepath.Join(m.state, "user", "secrets", "tokens", "tokens.csv")
	require.NoError(t, os.MkdirAll(filepath.Dir(tokens), 0o700))
	text := file("  frontProxies: [{name: main, authentication: {tokenFile: {secret: tokens}}}]")
	require.ErrorContains(t, m.open(text).preflight(), "no key tokens.csv")

	require.NoError(t, os.WriteFile(tokens, []byte("token,bob,1"), 0o600))
	m.up(text)
	mounted := filepath.Join(m.layout().Dir, "components", proxy, "config", "config", "tokens.csv")
	got, err := os.ReadFile(mounted)
	require.NoError(t, err)
	require.Equal(t, "token,bob,1", string(got))
	pids := m.pids()
	require.Empty(t, changed(m.up(text)))
	require.Equal(t, pids, m.pids())

	require.NoError(t, os.WriteFile(tokens, []byte("token,carol,1"), 0o600))
	m.up(text)
	got, err = os.ReadFile(mounted)
	require.NoError(t, err)
	require.Equal(t, "token,carol,1", string(got))
	require.NotEqual(t, pids[proxy], m.pids()[proxy])
	require.Equal(t, pids[alpha], m.pids()[alpha])
}

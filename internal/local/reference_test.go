package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/clierr"
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

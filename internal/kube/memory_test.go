package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

// remembering is a runtime with a connected cluster, and what it notes.
func remembering(t *testing.T, stateDir string) (*Runtime, *[]string) {
	t.Helper()
	r, _ := scripted(t, nil)
	r.home.uid = "uid-1"
	notes := &[]string{}
	r.options.StateDir, r.options.Notify = stateDir, func(m string) { *notes = append(*notes, m) }
	return r, notes
}

// A run succeeds where this machine cannot remember it: a read-only home, a full disk.
func TestMemoryIsBestEffort(t *testing.T) {
	for name, block := range map[string]func(t *testing.T, dir string){
		"no place to write": func(t *testing.T, dir string) { require.NoError(t, os.WriteFile(dir, nil, 0o600)) },
		"no place for its folder": func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "clusters"), nil, 0o600))
		},
		"a place that can be read only": func(t *testing.T, dir string) { require.NoError(t, os.Symlink("nowhere", dir)) },
		"no file": func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "clusters", "demo.json", "x"), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			block(t, dir)
			r, notes := remembering(t, dir)
			strange, err := r.recognise(t.Context(), []*survey{{site: r.home, inventory: &inventory{secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}}}})
			require.NoError(t, err)
			require.False(t, strange)
			require.NoError(t, r.remember())
			require.NoError(t, r.remember())
			require.NoError(t, r.forget(r.home))
			require.Len(t, *notes, 1, "it is said once")
			require.True(t, strings.HasPrefix((*notes)[0], "this machine does not remember which clusters the setup is on"), (*notes)[0])
		})
	}
}

func TestMemoryWithoutAHome(t *testing.T) {
	t.Chdir(t.TempDir())
	r, notes := remembering(t, "")
	require.NoError(t, r.remember())
	require.NoError(t, r.forget(r.home))
	require.Empty(t, *notes)
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestMemoryOfAnotherCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	r, notes := remembering(t, dir)
	require.NoError(t, r.remember())
	entries, err := os.ReadDir(filepath.Join(dir, "clusters"))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")

	r.home.uid = "uid-2"
	_, err = r.recognise(t.Context(), []*survey{{site: r.home, inventory: &inventory{secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}}}})
	require.ErrorContains(t, err, "another cluster than this one")

	require.NoError(t, os.WriteFile(r.memoryFile(), []byte("{"), 0o600))
	for _, err := range []error{r.remember(), r.forget(r.home)} {
		require.ErrorContains(t, err, "demo.json")
		require.Contains(t, clierr.Hint(err), "delete the file")
	}
	require.Empty(t, *notes)

	require.NoError(t, os.WriteFile(r.memoryFile(), []byte("[]"), 0o600))
	require.NoError(t, r.remember())
	require.NoError(t, r.forget(r.home))
	require.NoFileExists(t, r.memoryFile())
	require.NoError(t, r.forget(r.home))
	require.Empty(t, *notes)
}

package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// newKnown are the known clusters of a setup, one of its clusters, and what the user was told.
func newKnown(t *testing.T, stateDir string) (*KnownClusters, *cluster.Client, *[]string) {
	t.Helper()
	notes := &[]string{}
	k := NewKnownClusters(stateDir, "demo", func(format string, args ...any) { *notes = append(*notes, fmt.Sprintf(format, args...)) })
	return k, &cluster.Client{Cluster: topology.Cluster{Name: "eu", Namespace: "kcp"}, KubeContext: "c", UID: "uid-1"}, notes
}

// A run succeeds where this machine cannot remember it: a read-only home, a full disk.
func TestKnownClustersAreBestEffort(t *testing.T) {
	for name, block := range map[string]func(t *testing.T, dir string){
		"no place to write": func(t *testing.T, dir string) { require.NoError(t, os.WriteFile(dir, nil, 0o600)) },
		"no place for its directory": func(t *testing.T, dir string) {
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
			k, cl, notes := newKnown(t, dir)
			all, err := k.Load()
			require.NoError(t, err)
			require.Empty(t, all)
			require.NoError(t, k.Remember([]*cluster.Client{cl}))
			require.NoError(t, k.Remember([]*cluster.Client{cl}))
			require.NoError(t, k.Forget(cl))
			require.Len(t, *notes, 1, "it is said once")
			require.Contains(t, (*notes)[0], "cannot keep the list of clusters")
		})
	}
}

func TestKnownClustersWithoutAStateDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	k, cl, notes := newKnown(t, "")
	require.NoError(t, k.Remember([]*cluster.Client{cl}))
	require.NoError(t, k.Forget(cl))
	require.Empty(t, *notes)
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, entries)
}

// The setup file has named no context, and the cluster is left with the one that was used.
func TestForgetClusterThatTheSetupHasLeft(t *testing.T) {
	k, cl, _ := newKnown(t, filepath.Join(t.TempDir(), "state"))
	require.NoError(t, k.Remember([]*cluster.Client{cl}))
	left := func(uid types.UID) *cluster.Client {
		return &cluster.Client{Cluster: PlacementOf(cl).Cluster(), KubeContext: "c", UID: uid}
	}
	require.NoError(t, k.Forget(left("uid-2")))
	all, err := k.Load()
	require.NoError(t, err)
	require.Len(t, all, 1, "it is another cluster")

	require.NoError(t, k.Forget(left(cl.UID)))
	all, err = k.Load()
	require.NoError(t, err)
	require.Empty(t, all)
}

func TestKnownClusterThatIsAnotherOneNow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k, cl, notes := newKnown(t, dir)
	require.NoError(t, k.Remember([]*cluster.Client{cl}))
	entries, err := os.ReadDir(filepath.Join(dir, "clusters"))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")

	cl.UID = "uid-2"
	all, err := k.Load()
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.True(t, all[0].Is(cl))
	require.NotEqual(t, cl.UID, all[0].UID)

	require.NoError(t, os.WriteFile(k.file, []byte("{"), 0o600))
	for _, err := range []error{k.Remember([]*cluster.Client{cl}), k.Forget(cl)} {
		require.ErrorContains(t, err, "demo.json")
		require.Contains(t, clierr.Hint(err), "delete the file")
	}
	require.Empty(t, *notes)

	require.NoError(t, os.WriteFile(k.file, []byte("[]"), 0o600))
	require.NoError(t, k.Remember([]*cluster.Client{cl}))
	require.NoError(t, k.Forget(cl))
	require.NoFileExists(t, k.file)
	require.NoError(t, k.Forget(cl))
	require.Empty(t, *notes)
}

package kubeconfig

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/pki"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// theirs is a kubeconfig that people already have.
const theirs = `apiVersion: v1
kind: Config
current-context: work
preferences: {}
clusters:
- name: work
  cluster:
    server: https://work.example.com
    certificate-authority: certs/ca.crt
contexts:
- name: work
  context:
    cluster: work
    user: me
    namespace: mine
    extensions:
    - name: other.example.com
      extension: {a: 1}
users:
- name: me
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: login
      args: [--to, work]
      interactiveMode: Never
`

func user(name, url string) []byte {
	return ForUser(topology.Access{Target: "front-proxy/main", URL: url, Kubeconfig: v1alpha1.Kubeconfig{User: name}},
		[]byte("ca"), pki.Pair{Cert: []byte("cert"), Key: []byte("key")})
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func read(t *testing.T, path string) *api.Config {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	return cfg
}

func TestMergeKeepsWhatIsThere(t *testing.T) {
	path := write(t, theirs)
	before := read(t, path)
	name, err := Merge(t.Context(), path, user("admin", "https://kcp"), MergeOptions{Setup: "demo"})
	require.NoError(t, err)
	require.Equal(t, "demo-root", name)
	after := read(t, path)
	require.Equal(t, "work", after.CurrentContext)
	require.Equal(t, before.Contexts["work"], after.Contexts["work"])
	require.Equal(t, before.Clusters["work"], after.Clusters["work"])
	require.Equal(t, before.AuthInfos["me"], after.AuthInfos["me"])
	require.Equal(t, []string{"demo-base", "demo-root", "work"}, slices.Sorted(maps.Keys(after.Contexts)))
	require.Equal(t, "https://kcp/clusters/root", after.Clusters["demo-root"].Server)
	require.Equal(t, "demo-admin", after.Contexts["demo-root"].AuthInfo)
	require.Equal(t, []byte("key"), after.AuthInfos["demo-admin"].ClientKeyData)
	require.NoError(t, clientcmd.ConfirmUsable(*after, "demo-root"))
	require.NoFileExists(t, path+".lock")

	gone, err := Remove(t.Context(), path, "demo")
	require.NoError(t, err)
	require.Equal(t, []string{"demo-base", "demo-root"}, gone)
	require.Equal(t, before, read(t, path))
}

func TestMergeNamesAndSwitches(t *testing.T) {
	for name, tc := range map[string]struct {
		o        MergeOptions
		current  string
		contexts []string
	}{
		"by setup":     {MergeOptions{Setup: "demo"}, "", []string{"demo-base", "demo-root"}},
		"by name":      {MergeOptions{Setup: "demo", ContextName: "mine"}, "", []string{"mine", "mine-base"}},
		"and switches": {MergeOptions{Setup: "demo", ContextName: "mine", Use: true}, "mine", []string{"mine", "mine-base"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "new", "config")
			_, err := Merge(t.Context(), path, user("admin", "https://kcp"), tc.o)
			require.NoError(t, err)
			cfg := read(t, path)
			require.Equal(t, tc.current, cfg.CurrentContext)
			require.Equal(t, tc.contexts, slices.Sorted(maps.Keys(cfg.Contexts)))
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		})
	}
}

func TestMergeReplacesItsOwn(t *testing.T) {
	path := write(t, theirs)
	for _, url := range []string{"https://old", "https://new", "https://new"} {
		_, err := Merge(t.Context(), path, user("admin", url), MergeOptions{Setup: "demo"})
		require.NoError(t, err)
	}
	require.Equal(t, "https://new", read(t, path).Clusters["demo-base"].Server)
	before, err := os.Stat(path)
	require.NoError(t, err)
	_, err = Merge(t.Context(), path, user("admin", "https://new"), MergeOptions{Setup: "demo"})
	require.NoError(t, err)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "nothing to change, nothing written")
}

func TestMergeRefusesForeignEntries(t *testing.T) {
	path := write(t, theirs)
	_, err := Merge(t.Context(), path, user("admin", "https://kcp"), MergeOptions{Setup: "other", ContextName: "shared"})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		o    MergeOptions
		want string
	}{
		"of a user":        {MergeOptions{Setup: "demo", ContextName: "work"}, `cluster "work", context "work"`},
		"of another setup": {MergeOptions{Setup: "demo", ContextName: "shared"}, `context "shared", context "shared-base", user "shared-admin"`},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile(path)
			require.NoError(t, err)
			_, err = Merge(t.Context(), path, user("admin", "https://kcp"), tc.o)
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, clierr.Conflict, clierr.Code(err))
			require.Contains(t, clierr.Hint(err), "--context-name")
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}

func TestMergeFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	link, target := filepath.Join(dir, "config"), filepath.Join(dir, "real", "config")
	require.NoError(t, os.Symlink(filepath.Join("real", "config"), link))
	_, err := Merge(t.Context(), link, user("admin", "https://kcp"), MergeOptions{Setup: "demo"})
	require.NoError(t, err)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
	require.Contains(t, read(t, target).Contexts, "demo-root")

	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink(loop, loop))
	_, err = Merge(t.Context(), loop, user("admin", "https://kcp"), MergeOptions{Setup: "demo"})
	require.ErrorContains(t, err, "too many links")
}

func TestMergeRespectsTheLock(t *testing.T) {
	path := write(t, theirs)
	require.NoError(t, os.WriteFile(path+".lock", nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Merge(ctx, path, user("admin", "https://kcp"), MergeOptions{Setup: "demo"})
	require.ErrorContains(t, err, "is locked by another program")
	require.Contains(t, clierr.Hint(err), path+".lock")
	require.FileExists(t, path+".lock")
	require.NotContains(t, read(t, path).Contexts, "demo-root")
}

func TestMergeRefusesWhatIsNoKubeconfig(t *testing.T) {
	path := write(t, "- not\n- a kubeconfig\n")
	_, err := Merge(t.Context(), path, user("admin", "https://kcp"), MergeOptions{Setup: "demo"})
	require.ErrorContains(t, err, "is no kubeconfig")
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "- not\n- a kubeconfig\n", string(got))
	require.NoFileExists(t, path+".lock")
}

func TestRemove(t *testing.T) {
	path := write(t, theirs)
	_, err := Merge(t.Context(), path, user("admin", "https://a"), MergeOptions{Setup: "a", Use: true})
	require.NoError(t, err)
	_, err = Merge(t.Context(), path, user("admin", "https://b"), MergeOptions{Setup: "b"})
	require.NoError(t, err)
	_, err = Remove(t.Context(), path, "a")
	require.NoError(t, err)
	cfg := read(t, path)
	require.Empty(t, cfg.CurrentContext, "the current context went with the rest")
	require.Equal(t, []string{"b-base", "b-root", "work"}, slices.Sorted(maps.Keys(cfg.Contexts)))

	none := filepath.Join(t.TempDir(), "no", "config")
	gone, err := Remove(t.Context(), none, "a")
	require.NoError(t, err)
	require.Empty(t, gone)
	require.NoDirExists(t, filepath.Dir(none))
}

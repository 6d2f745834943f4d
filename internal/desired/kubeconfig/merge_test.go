package kubeconfig

import (
	"context"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// theirs is the existing kubeconfig of a user.
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

func owner(setup, id string) Owner { return Owner{Setup: setup, Installation: id} }

func user(name, url string) []byte { return userOf(name, url, authority("ca")) }

func userOf(name, url string, ca []byte) []byte {
	return ForUser(topology.Access{Target: "front-proxy/main", URL: url, Kubeconfig: v1alpha1.Kubeconfig{User: name}},
		ca, pki.Pair{Cert: []byte("cert"), Key: []byte("key")})
}

// authority is a bundle of certificates with these contents.
func authority(contents ...string) (out []byte) {
	for _, c := range contents {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)})...)
	}
	return out
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
	name, err := Merge(t.Context(), path, user("admin", "https://kcp"), MergeOptions{Owner: Owner{Setup: "demo"}})
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

	gone, err := Remove(t.Context(), path, RemoveOptions{Owner: Owner{Setup: "demo"}, ServerCA: authority("ca")})
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
		"by setup":     {MergeOptions{Owner: Owner{Setup: "demo"}}, "", []string{"demo-base", "demo-root"}},
		"by name":      {MergeOptions{Owner: Owner{Setup: "demo"}, ContextName: "mine"}, "", []string{"mine", "mine-base"}},
		"and switches": {MergeOptions{Owner: Owner{Setup: "demo"}, ContextName: "mine", Use: true}, "mine", []string{"mine", "mine-base"}},
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
		_, err := Merge(t.Context(), path, user("admin", url), MergeOptions{Owner: Owner{Setup: "demo", Installation: "1"}})
		require.NoError(t, err)
	}
	require.Equal(t, "https://new", read(t, path).Clusters["demo-base"].Server)
	before, err := os.Stat(path)
	require.NoError(t, err)
	_, err = Merge(t.Context(), path, user("admin", "https://new"), MergeOptions{Owner: Owner{Setup: "demo", Installation: "1"}})
	require.NoError(t, err)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "nothing to change, nothing written")
}

// A copy on this machine has the ID and the authorities of the original. Its entries are others.
func TestEntriesOfACopyAreNotThoseOfTheOriginal(t *testing.T) {
	path := write(t, theirs)
	original := Owner{Setup: "demo", Installation: "1"}
	local := Owner{Setup: "demo", Installation: "1", Local: true}
	_, err := Merge(t.Context(), path, user("admin", "https://kcp"), MergeOptions{Owner: original, Use: true})
	require.NoError(t, err)
	admin := user("admin", "https://127.0.0.1:6443")
	_, err = Merge(t.Context(), path, admin, MergeOptions{Owner: local})
	require.Equal(t, clierr.Conflict, clierr.Code(err))
	require.ErrorContains(t, err, "They belong to installation 1 at https://kcp")
	before := read(t, path)
	_, err = Merge(t.Context(), path, admin, MergeOptions{Owner: local, ContextName: "copy"})
	require.NoError(t, err)
	gone, err := Remove(t.Context(), path, RemoveOptions{Owner: local, ServerCA: authority("ca")})
	require.NoError(t, err)
	require.Equal(t, []string{"copy", "copy-base"}, gone)
	require.Equal(t, before, read(t, path))
}

func TestMergeRefusesForeignEntries(t *testing.T) {
	path := write(t, theirs)
	_, err := Merge(t.Context(), path, user("admin", "https://kcp"), MergeOptions{Owner: Owner{Setup: "other"}, ContextName: "shared"})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		o    MergeOptions
		want string
	}{
		"of a user":        {MergeOptions{Owner: Owner{Setup: "demo"}, ContextName: "work"}, `cluster "work", context "work"`},
		"of another setup": {MergeOptions{Owner: Owner{Setup: "demo"}, ContextName: "shared"}, `context "shared", context "shared-base", user "shared-admin"`},
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
	_, err := Merge(t.Context(), link, user("admin", "https://kcp"), MergeOptions{Owner: Owner{Setup: "demo"}})
	require.NoError(t, err)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
	require.Contains(t, read(t, target).Contexts, "demo-root")

	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink(loop, loop))
	_, err = Merge(t.Context(), loop, user("admin", "https://kcp"), MergeOptions{Owner: Owner{Setup: "demo"}})
	require.ErrorContains(t, err, "too many links")
}

func TestMergeRespectsTheLock(t *testing.T) {
	path := write(t, theirs)
	require.NoError(t, os.WriteFile(path+".lock", nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Merge(ctx, path, user("admin", "https://kcp"), MergeOptions{Owner: Owner{Setup: "demo"}})
	require.ErrorContains(t, err, "is locked by another program")
	require.Contains(t, clierr.Hint(err), path+".lock")
	require.FileExists(t, path+".lock")
	require.NotContains(t, read(t, path).Contexts, "demo-root")
}

func TestMergeRefusesAnInvalidKubeconfig(t *testing.T) {
	path := write(t, "- not\n- a kubeconfig\n")
	_, err := Merge(t.Context(), path, user("admin", "https://kcp"), MergeOptions{Owner: Owner{Setup: "demo"}})
	require.ErrorContains(t, err, path)
	require.Equal(t, clierr.BadInput, clierr.Code(err))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "- not\n- a kubeconfig\n", string(got))
	require.NoFileExists(t, path+".lock")
}

func TestRemove(t *testing.T) {
	path := write(t, theirs)
	_, err := Merge(t.Context(), path, user("admin", "https://a"), MergeOptions{Owner: Owner{Setup: "a"}, Use: true})
	require.NoError(t, err)
	_, err = Merge(t.Context(), path, user("admin", "https://b"), MergeOptions{Owner: Owner{Setup: "b"}})
	require.NoError(t, err)
	_, err = Remove(t.Context(), path, RemoveOptions{Owner: Owner{Setup: "a"}, ServerCA: authority("ca")})
	require.NoError(t, err)
	cfg := read(t, path)
	require.Empty(t, cfg.CurrentContext, "the current context went with the rest")
	require.Equal(t, []string{"b-base", "b-root", "work"}, slices.Sorted(maps.Keys(cfg.Contexts)))

	none := filepath.Join(t.TempDir(), "no", "config")
	gone, err := Remove(t.Context(), none, RemoveOptions{Owner: Owner{Setup: "a"}, ServerCA: authority("ca")})
	require.NoError(t, err)
	require.Empty(t, gone)
	require.NoDirExists(t, filepath.Dir(none))
}

// merged writes a kubeconfig with the entries of an installation.
func merged(t *testing.T, o Owner, url string, ca []byte) string {
	t.Helper()
	path := write(t, theirs)
	_, err := Merge(t.Context(), path, userOf("admin", url, ca), MergeOptions{Owner: o, ContextName: "demo"})
	require.NoError(t, err)
	return path
}

// Two installations can have the same name, for instance on a cluster and on a machine, or in staging and in
// production. Neither replaces the entries of the other.
func TestMergeKnowsInstallations(t *testing.T) {
	old, first, second := Owner{Setup: "demo"}, owner("demo", "1"), owner("demo", "2")
	ca := authority("a")
	for name, tc := range map[string]struct {
		was, is        Owner
		url            string
		ca             []byte
		want           bool
		errOld, errNew string
	}{
		"the same":                            {first, first, "https://kcp", ca, true, "", ""},
		"the same, moved":                     {first, first, "https://new", authority("b"), true, "", ""},
		"another":                             {first, second, "https://kcp", ca, false, "installation 1 at https://kcp", "installation 2 at https://kcp"},
		"of an earlier release":               {old, first, "https://kcp", ca, true, "", ""},
		"of an earlier release, in rotation":  {old, first, "https://kcp", authority("b", "a"), true, "", ""},
		"of an earlier release, other server": {old, first, "https://new", ca, false, "an installation without an ID at https://kcp", "installation 1 at https://new"},
		"of an earlier release, other CA":     {old, first, "https://kcp", authority("b"), false, "an installation without an ID at https://kcp", "installation 1 at https://kcp"},
		"both without an ID":                  {old, old, "https://kcp", ca, true, "", ""},
		"both without an ID, other CA":        {old, old, "https://kcp", authority("b"), false, "an installation without an ID", "an installation without an ID"},
		"the new one without an ID":           {first, old, "https://kcp", ca, true, "", ""},
		"the new one without an ID, other CA": {first, old, "https://kcp", authority("b"), false, "installation 1", "an installation without an ID"},
	} {
		t.Run(name, func(t *testing.T) {
			path := merged(t, tc.was, "https://kcp", ca)
			before, err := os.ReadFile(path)
			require.NoError(t, err)
			_, err = Merge(t.Context(), path, userOf("admin", tc.url, tc.ca), MergeOptions{Owner: tc.is, ContextName: "demo"})
			if tc.want {
				require.NoError(t, err)
				require.Equal(t, tc.url, read(t, path).Clusters["demo-base"].Server)
				return
			}
			require.Equal(t, clierr.Conflict, clierr.Code(err))
			require.ErrorContains(t, err, `another installation of setup "demo"`)
			require.ErrorContains(t, err, `cluster "demo", cluster "demo-base", context "demo", context "demo-base", user "demo-admin"`)
			require.ErrorContains(t, err, tc.errOld)
			require.ErrorContains(t, err, "and this is "+tc.errNew)
			require.Contains(t, clierr.Hint(err), "--context-name")
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(before), string(after))
			_, err = Merge(t.Context(), path, userOf("admin", tc.url, tc.ca), MergeOptions{Owner: tc.is, ContextName: "twin"})
			require.NoError(t, err, "as the hint says")
		})
	}
}

// A user entry of an earlier release that is in no context may have the only copy of a key.
func TestMergeKeepsAnUnusedUser(t *testing.T) {
	path := merged(t, Owner{Setup: "demo"}, "https://kcp", authority("a"))
	cfg := read(t, path)
	maps.DeleteFunc(cfg.Contexts, func(n string, _ *api.Context) bool { return strings.HasPrefix(n, "demo") })
	require.NoError(t, clientcmd.WriteToFile(*cfg, path))
	o := MergeOptions{Owner: owner("demo", "1"), ContextName: "demo"}
	_, err := Merge(t.Context(), path, userOf("admin", "https://kcp", authority("a")), o)
	require.ErrorContains(t, err, `user "demo-admin"`)
	require.NotContains(t, err.Error(), `context "demo`)
	require.ErrorContains(t, err, "an installation without an ID")
	require.ErrorContains(t, err, "this is installation 1")
}

func TestRemoveKnowsInstallations(t *testing.T) {
	ca := authority("a")
	for name, tc := range map[string]struct {
		was  Owner
		o    RemoveOptions
		gone bool
	}{
		"the same":                        {owner("demo", "1"), RemoveOptions{owner("demo", "1"), nil}, true},
		"another":                         {owner("demo", "2"), RemoveOptions{owner("demo", "1"), ca}, false},
		"of an earlier release":           {owner("demo", ""), RemoveOptions{owner("demo", "1"), authority("b", "a")}, true},
		"of an earlier release, other CA": {owner("demo", ""), RemoveOptions{owner("demo", "1"), authority("b")}, false},
		"of an earlier release, no CA":    {owner("demo", ""), RemoveOptions{owner("demo", "1"), nil}, false},
		"another setup":                   {owner("other", "1"), RemoveOptions{owner("demo", "1"), ca}, false},
		"no setup":                        {owner("demo", "1"), RemoveOptions{ServerCA: ca}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := merged(t, tc.was, "https://kcp", ca)
			before, err := os.ReadFile(path)
			require.NoError(t, err)
			gone, err := Remove(t.Context(), path, tc.o)
			require.NoError(t, err)
			if !tc.gone {
				require.Empty(t, gone)
				after, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, string(before), string(after))
				return
			}
			require.Equal(t, []string{"demo", "demo-base"}, gone)
			want, err := clientcmd.Load([]byte(theirs))
			require.NoError(t, err)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			got, err := clientcmd.Load(after)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

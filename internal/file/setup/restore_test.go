package setup

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const commented = `# The setup of the team.
apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  version: v0.32.3 # newest
  # Shards of the EU.
  shards:
  # holds most workspaces
  - name: alpha
    labels: {region: eu}
  - name: beta # to be removed
  rootShard:
    replicas: 2
`

func TestRestore(t *testing.T) {
	for name, tc := range map[string]struct {
		file, other, want string
		replaced          bool
	}{
		"the same": {commented, commented, commented, false},
		"another value, an item less and a field more": {commented, `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  version: v0.32.2
  shards: [{name: alpha, labels: {region: us}}]
  rootShard: {replicas: 2}
  cacheServer: {}
`, `# The setup of the team.
apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  version: v0.32.2 # newest
  # Shards of the EU.
  shards:
  # holds most workspaces
  - name: alpha
    labels: {region: us}
  rootShard:
    replicas: 2
`, false},
		"anchors": {`apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  shards:
  - {name: alpha, labels: &l {region: eu}}
  - {name: beta, labels: *l}
`, "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\n", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			f, other := read(t, tc.file), read(t, tc.other)
			// A revision has all defaults.
			text, err := Marshal(other.Setup)
			require.NoError(t, err)
			revision, err := Parse("revision 1", text)
			require.NoError(t, err)

			restored, kept, err := f.Restore(revision)
			require.NoError(t, err)
			require.Equal(t, tc.replaced, !kept)
			require.Equal(t, other.Setup, restored.Setup)
			if tc.replaced {
				require.Equal(t, string(text), string(restored.Data))
				return
			}
			require.Contains(t, string(restored.Data), tc.want)
		})
	}
}

// What the file lacks becomes as it was written, unless a default of that time was another one.
func TestRestoreAsItWasWritten(t *testing.T) {
	const begin = "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\nspec:\n"
	const written = begin + "  shards:\n  - name: alpha # the first\n  cacheServer: {} # for all\n"
	now := read(t, begin+"  defaults: {logLevel: 4} # more\n  shards:\n  - name: beta\n")
	text, err := Marshal(read(t, written).Setup)
	require.NoError(t, err)
	for name, tc := range map[string]struct{ setup, want string }{
		"the same defaults": {string(text), written},
		"other defaults":    {strings.Replace(string(text), "version: v0.32.3", "version: v0.32.2", 1), "version: v0.32.2"},
	} {
		revision, err := Parse("revision 1", []byte(tc.setup))
		require.NoError(t, err)
		restored, kept, err := now.Restore(revision.As([]byte(written)))
		require.NoError(t, err)
		require.True(t, kept, name)
		require.Contains(t, string(restored.Data), tc.want, name)
	}
}

// A revision from before up --write-installation does not take the ID from the file.
func TestRestoreKeepsTheInstallation(t *testing.T) {
	const header = "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata:\n  name: demo\n"
	revision, err := Parse("revision 1", []byte(header+"spec:\n  shards: [{name: alpha}]\n"))
	require.NoError(t, err)
	for _, spec := range []string{
		"spec: {}\n", "spec:\n  shards: [{name: alpha}]\n",
		"spec:\n  shards: [{name: a, labels: &l {region: eu}}, {name: b, labels: *l}]\n",
	} {
		f, err := Parse("kcp.yaml", []byte(header+"  installation: demo-x7k2m9qd\n"+spec))
		require.NoError(t, err)
		restored, _, err := f.Restore(revision)
		require.NoError(t, err)
		require.Equal(t, "demo-x7k2m9qd", restored.Setup.Metadata.Installation)
		require.Equal(t, "alpha", restored.Setup.Spec.Shards[0].Name)
	}
}

// Every valid file can become every other one.
func TestRestoreAnyFile(t *testing.T) {
	all, texts := map[string]*File{}, map[string][]byte{}
	for name, data := range valid(t) {
		all[name] = read(t, string(data))
		text, err := Marshal(all[name].Setup)
		require.NoError(t, err)
		texts[name] = text
	}
	for from, f := range all {
		for to, want := range all {
			restored, _, err := f.Restore(want)
			require.NoError(t, err, "%s from %s", to, from)
			text, err := Marshal(restored.Setup)
			require.NoError(t, err)
			require.Equal(t, string(texts[to]), string(text), "%s from %s", to, from)
		}
	}
}

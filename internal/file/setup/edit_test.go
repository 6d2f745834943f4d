package setup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

const head = "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\n"

func read(t testing.TB, text string) *File {
	t.Helper()
	f, err := Parse("kcp.yaml", []byte(text))
	require.NoError(t, err)
	return f
}

func gamma() v1alpha1.Shard {
	yes := true
	return v1alpha1.Shard{Name: "gamma", ShardSpec: v1alpha1.ShardSpec{
		Component: v1alpha1.Component{Cluster: "us"},
		Etcd:      &v1alpha1.Etcd{Embedded: &v1alpha1.EmbeddedEtcd{Ephemeral: &yes}},
	}}
}

const clusters = "  clusters: [{name: eu}, {name: us, namespace: other}]\n  rootShard: {cluster: eu, url: 'https://root.example.com', service: {type: LoadBalancer}}\n" +
	"  external: {hostname: kcp.example.com}\n  cacheServer: {cluster: eu, url: 'https://cache.example.com'}\n"

func TestAddShard(t *testing.T) {
	for name, tc := range map[string]struct{ before, after string }{
		"no spec": {
			"",
			"spec:\n  shards:\n  - name: gamma\n",
		},
		"empty spec": {
			"spec: # nothing yet\n",
			"spec: # nothing yet\n  shards:\n  - name: gamma\n",
		},
		"empty flow spec": {
			"spec: {} # nothing yet\n",
			"spec: {shards: [{name: gamma}]} # nothing yet\n",
		},
		"in front of what comes later": {
			"spec:\n  # Which release.\n  version: v0.32.3\n  rootShard:\n    replicas: 1\n    # that is few\n\n  # What clients dial.\n  frontProxies:\n  - name: main\n",
			"spec:\n  # Which release.\n  version: v0.32.3\n  rootShard:\n    replicas: 1\n    # that is few\n  shards:\n  - name: gamma\n\n  # What clients dial.\n  frontProxies:\n  - name: main\n",
		},
		"at the beginning": {
			"spec:\n  # What clients dial.\n  frontProxies:\n    - name: main\n",
			"spec:\n  shards:\n    - name: gamma\n  # What clients dial.\n  frontProxies:\n    - name: main\n",
		},
		"four spaces": {
			"spec:\n    version: v0.32.3\n    frontProxies:\n        - name: main\n",
			"spec:\n    version: v0.32.3\n    shards:\n        - name: gamma\n    frontProxies:\n        - name: main\n",
		},
		"list without items": {
			"spec:\n  shards: # none\n  version: v0.32.3\n",
			"spec:\n  shards: # none\n  - name: gamma\n  version: v0.32.3\n",
		},
		"list that is null": {
			"spec:\n  shards: ~ # none\n",
			"spec:\n  shards: [{name: gamma}] # none\n",
		},
		"empty flow list": {
			"spec:\n  shards: [ ]  # none\n",
			"spec:\n  shards: [{name: gamma} ]  # none\n",
		},
		"block list": {
			"spec:\n  shards:\n  - name: alpha # first\n    replicas: 1\n    # replicas: 2\n  # - name: beta\n  version: v0.32.3\n",
			"spec:\n  shards:\n  - name: alpha # first\n    replicas: 1\n    # replicas: 2\n  - name: gamma\n  # - name: beta\n  version: v0.32.3\n",
		},
		"wide dashes": {
			"spec:\n    shards:\n    -   name: alpha\n        replicas: 1\n",
			"spec:\n    shards:\n    -   name: alpha\n        replicas: 1\n    -   name: gamma\n",
		},
		"dash on a line of its own": {
			"spec:\n  shards:\n  -\n    name: alpha\n",
			"spec:\n  shards:\n  -\n    name: alpha\n  - name: gamma\n",
		},
		"blank lines between items": {
			"spec:\n  shards:\n  - name: alpha\n\n  # The second.\n  - name: beta\n\n  frontProxies: []\n",
			"spec:\n  shards:\n  - name: alpha\n\n  # The second.\n  - name: beta\n\n  - name: gamma\n\n  frontProxies: []\n",
		},
		"flow items in a block list": {
			"spec:\n  shards:\n  - {name: alpha, replicas: 1} # first\n",
			"spec:\n  shards:\n  - {name: alpha, replicas: 1} # first\n  - {name: gamma}\n",
		},
		"flow list": {
			"spec:\n  shards: [{name: alpha}] # all\n",
			"spec:\n  shards: [{name: alpha}, {name: gamma}] # all\n",
		},
		"flow list with a comma at the end": {
			"spec:\n  shards: [ {name: alpha}, ]\n",
			"spec:\n  shards: [ {name: alpha}, {name: gamma}, ]\n",
		},
		"flow list on lines": {
			"spec:\n  shards: [\n    {name: alpha}, # a, ]\n    {name: 'beta'} # \"b\n  ]\n",
			"spec:\n  shards: [\n    {name: alpha}, # a, ]\n    {name: 'beta'}, # \"b\n    {name: gamma}\n  ]\n",
		},
		"flow list on lines with a comma at the end": {
			"spec:\n  shards: [\n    {name: alpha},\n    {name: beta}, # ]\n  ]\n",
			"spec:\n  shards: [\n    {name: alpha},\n    {name: beta}, # ]\n    {name: gamma},\n  ]\n",
		},
		"flow all over": {
			"spec: {version: v0.32.3, frontProxies: [{name: main}]}\n",
			"spec: {version: v0.32.3, shards: [{name: gamma}], frontProxies: [{name: main}]}\n",
		},
		"brackets in quotes": {
			"spec: {shards: [{name: alpha, extraArgs: ['--cert-dir=]}', \"--tls-min-version=\\\"}\", --audit-log-path=it's]}]}\n",
			"spec: {shards: [{name: alpha, extraArgs: ['--cert-dir=]}', \"--tls-min-version=\\\"}\", --audit-log-path=it's]}, {name: gamma}]}\n",
		},
		"comments right behind what they are about": {
			"spec:\n  shards: [{name: alpha},# ]\n    {name: beta}# \"]\n  ]\n",
			"spec:\n  shards: [{name: alpha},# ]\n    {name: beta},# \"]\n    {name: gamma}\n  ]\n",
		},
		"text in which anything can stand": {
			"spec:\n  shards:\n  - name: alpha\n    podTemplate:\n      metadata:\n        annotations:\n          note: |\n            - name: beta\n            # no comment\n\n  # About the version.\n  version: v0.32.3\n",
			"spec:\n  shards:\n  - name: alpha\n    podTemplate:\n      metadata:\n        annotations:\n          note: |\n            - name: beta\n            # no comment\n  - name: gamma\n\n  # About the version.\n  version: v0.32.3\n",
		},
		"anchors elsewhere": {
			"spec:\n  rootShard: {resources: &r {requests: {cpu: 1}}}\n  shards:\n  - name: alpha\n    resources: *r\n",
			"spec:\n  rootShard: {resources: &r {requests: {cpu: 1}}}\n  shards:\n  - name: alpha\n    resources: *r\n  - name: gamma\n",
		},
		"items that are merged": {
			"spec:\n  rootShard: &r {replicas: 1}\n  shards:\n  - <<: *r\n    name: alpha\n",
			"spec:\n  rootShard: &r {replicas: 1}\n  shards:\n  - <<: *r\n    name: alpha\n  - name: gamma\n",
		},
		"document marks": {
			"spec:\n  shards:\n  - name: alpha\n...\n# the end\n",
			"spec:\n  shards:\n  - name: alpha\n  - name: gamma\n...\n# the end\n",
		},
		"other characters": {
			"spec:\n  shards: [{name: alpha, extraArgs: [--audit-log-path=größer→]}, {name: beta}] # größer\n",
			"spec:\n  shards: [{name: alpha, extraArgs: [--audit-log-path=größer→]}, {name: beta}, {name: gamma}] # größer\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for style, in := range styles() {
				t.Run(style, func(t *testing.T) {
					before, after := in(head+tc.before), in(head+tc.after)
					f := read(t, before)
					got, err := f.AddShard(v1alpha1.Shard{Name: "gamma"})
					require.NoError(t, err)
					require.Empty(t, cmp.Diff(after, string(got.Data)))
					require.Equal(t, "gamma", got.Setup.Spec.Shards[len(got.Setup.Spec.Shards)-1].Name)
					require.Equal(t, before, string(f.Data), "the file that was read stays")

					back, err := got.RemoveShard("gamma")
					require.NoError(t, err)
					require.Empty(t, cmp.Diff(f.Setup, back.Setup, cmpopts.EquateEmpty()))
				})
			}
		})
	}
}

// styles are different styles of the same lines.
func styles() map[string]func(string) string {
	return map[string]func(string) string{
		"as it is":                func(s string) string { return s },
		"Windows":                 func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"no newline at the end":   func(s string) string { return strings.TrimSuffix(s, "\n") },
		"byte order mark":         func(s string) string { return "\ufeff" + s },
		"Windows, cut at the end": func(s string) string { return strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\r\n") },
	}
}

func TestAddShardWritesWhatItHas(t *testing.T) {
	for name, tc := range map[string]struct{ before, after string }{
		"block": {
			"  shards:\n  - name: alpha\n    cluster: eu\n    url: https://alpha.example.com\n",
			"  shards:\n  - name: alpha\n    cluster: eu\n    url: https://alpha.example.com\n" +
				"  - name: gamma\n    cluster: us\n    etcd:\n      embedded:\n        ephemeral: true\n    url: https://gamma.example.com:6443\n",
		},
		"flow": {
			"  shards: []\n",
			"  shards: [{name: gamma, cluster: us, etcd: {embedded: {ephemeral: true}}, url: 'https://gamma.example.com:6443'}]\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := gamma()
			s.URL = "https://gamma.example.com:6443"
			got, err := read(t, head+"spec:\n"+clusters+tc.before).AddShard(s)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(head+"spec:\n"+clusters+tc.after, string(got.Data)))
			last := got.Setup.Spec.Shards[len(got.Setup.Spec.Shards)-1]
			require.Equal(t, s.URL, last.URL)
			require.True(t, *last.Etcd.Embedded.Ephemeral)
		})
	}
}

func TestRemoveShard(t *testing.T) {
	for name, tc := range map[string]struct{ shard, before, after string }{
		"first": {"alpha",
			"spec:\n  shards:\n  # The first.\n  # It is old.\n  - name: alpha # yes\n    replicas: 1\n    # replicas: 2\n  # The second.\n  - name: beta\n",
			"spec:\n  shards:\n  # The second.\n  - name: beta\n",
		},
		"between blank lines": {"beta",
			"spec:\n  shards:\n  - name: alpha\n\n  # The second.\n  - name: beta\n\n  - name: gamma\n",
			"spec:\n  shards:\n  - name: alpha\n\n  - name: gamma\n",
		},
		"last behind a blank line": {"beta",
			"spec:\n  shards:\n  - name: alpha\n\n  - name: beta\n\n  version: v0.32.3\n",
			"spec:\n  shards:\n  - name: alpha\n\n  version: v0.32.3\n",
		},
		"comments of others": {"beta",
			"spec:\n  shards:\n  - name: alpha\n    # of alpha\n  # - name: old\n  # of beta\n  - name: beta\n  # at the end\n  version: v0.32.3\n",
			"spec:\n  shards:\n  - name: alpha\n    # of alpha\n  # - name: old\n  # at the end\n  version: v0.32.3\n",
		},
		"below a commented-out one": {"alpha",
			"spec:\n  shards:\n  # - name: old\n  #   labels:\n  #   - us\n  #   replicas: 1\n  # of alpha\n  #   and more\n  - name: alpha\n  - name: beta\n",
			"spec:\n  shards:\n  # - name: old\n  #   labels:\n  #   - us\n  #   replicas: 1\n  - name: beta\n",
		},
		"below commented-out ones only": {"alpha",
			"spec:\n  shards:\n  #- name: older\n  #- name: old\n  #  replicas: 1\n  - name: alpha\n  version: v0.32.3\n",
			"spec:\n  shards: []\n  #- name: older\n  #- name: old\n  #  replicas: 1\n  version: v0.32.3\n",
		},
		"the only one": {"alpha",
			"spec:\n  version: v0.32.3\n  shards:\n  - name: alpha\n    replicas: 1\n  frontProxies:\n  - name: main\n",
			"spec:\n  version: v0.32.3\n  frontProxies:\n  - name: main\n",
		},
		"the only one of a list with comments": {"alpha",
			"spec:\n  version: v0.32.3\n  # All shards.\n  shards: # of ours\n  - name: alpha\n",
			"spec:\n  version: v0.32.3\n  # All shards.\n  shards: [] # of ours\n",
		},
		"all there is": {"alpha",
			"spec:\n  shards:\n  - name: alpha\n",
			"spec:\n  shards: []\n",
		},
		"dash on a line of its own": {"beta",
			"spec:\n  shards:\n  - name: alpha\n  -\n    name: beta\n  - name: gamma\n",
			"spec:\n  shards:\n  - name: alpha\n  - name: gamma\n",
		},
		"first of flow": {"alpha",
			"spec: {shards: [{name: alpha}, {name: beta}]}\n",
			"spec: {shards: [{name: beta}]}\n",
		},
		"last of flow": {"beta",
			"spec: {shards: [{name: alpha} , {name: beta} ]}\n",
			"spec: {shards: [{name: alpha} ]}\n",
		},
		"only one of flow": {"alpha",
			"spec: {shards: [ {name: alpha} ]}\n",
			"spec: {shards: [  ]}\n",
		},
		"line of a flow list": {"beta",
			"spec:\n  shards: [\n    {name: alpha}, # a\n    # about b\n    {name: beta,\n     replicas: 1} # b\n  ]\n",
			"spec:\n  shards: [\n    {name: alpha}, # a\n  ]\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for style, in := range styles() {
				t.Run(style, func(t *testing.T) {
					got, err := read(t, in(head+tc.before)).RemoveShard(tc.shard)
					require.NoError(t, err)
					require.Empty(t, cmp.Diff(in(head+tc.after), string(got.Data)))
				})
			}
		})
	}
}

func TestSetVersion(t *testing.T) {
	for name, tc := range map[string]struct{ before, after string }{
		"plain":         {"spec:\n  version:   v0.32.2   # the release\n", "spec:\n  version:   v0.32.3   # the release\n"},
		"single quotes": {"spec:\n  version: 'v0.32.2'\n", "spec:\n  version: 'v0.32.3'\n"},
		"double quotes": {"spec: {version: \"v0.32.2\", shards: []}\n", "spec: {version: \"v0.32.3\", shards: []}\n"},
		"on the next line": {
			"spec:\n  version:\n    v0.32.2\n", "spec:\n  version:\n    v0.32.3\n",
		},
		"empty":   {"spec:\n  version: # later\n  shards: []\n", "spec:\n  version: v0.32.3 # later\n  shards: []\n"},
		"none":    {"spec:\n  # The shards.\n  shards: []\n", "spec:\n  version: v0.32.3\n  # The shards.\n  shards: []\n"},
		"no spec": {"# end\n", "spec:\n  version: v0.32.3\n# end\n"},
		"flow":    {"spec: {shards: []}\n", "spec: {version: v0.32.3, shards: []}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for style, in := range styles() {
				t.Run(style, func(t *testing.T) {
					got, err := read(t, in(head+tc.before)).SetVersion("v0.32.3")
					require.NoError(t, err)
					require.Empty(t, cmp.Diff(in(head+tc.after), string(got.Data)))
					require.Equal(t, "v0.32.3", got.Setup.Spec.Version)
				})
			}
		})
	}
}

func TestJSONIsEdited(t *testing.T) {
	const before = `{"apiVersion": "kcpctl.dev/v1alpha1", "kind": "Setup", "metadata": {"name": "demo"},` + "\n" + ` "spec": {"version": "v0.32.2", "shards": [{"name": "alpha"}]}}`
	f := read(t, before)
	f, err := f.AddShard(v1alpha1.Shard{Name: "gamma"})
	require.NoError(t, err)
	f, err = f.SetVersion("v0.32.3")
	require.NoError(t, err)
	f, err = f.RemoveShard("alpha")
	require.NoError(t, err)
	require.Equal(t, strings.NewReplacer(`{"name": "alpha"}`, "{name: gamma}", "v0.32.2", "v0.32.3").Replace(before), string(f.Data))
}

func TestUnsafeEditsAreRefused(t *testing.T) {
	add := func(f *File) (*File, error) { return f.AddShard(v1alpha1.Shard{Name: "gamma"}) }
	remove := func(f *File) (*File, error) { return f.RemoveShard("alpha") }
	set := func(f *File) (*File, error) { return f.SetVersion("v0.32.3") }
	for name, tc := range map[string]struct {
		text string
		edit func(*File) (*File, error)
		want string
	}{
		"list with an anchor":       {"spec:\n  shards: &s\n  - name: alpha\n", add, "cannot edit kcp.yaml: spec.shards has an anchor or is an alias"},
		"spec with an anchor":       {"spec: &s\n  shards: []\n", add, "cannot edit kcp.yaml: spec has an anchor or is an alias"},
		"item whose anchor is used": {"spec:\n  shards:\n  - name: alpha\n    resources: &r {}\n  - name: beta\n    resources: *r\n", remove, "kcp.yaml after the edit: "},
		"version that is used":      {"spec:\n  version: &v v0.32.2\n  image: {tag: *v}\n", set, "spec.version has an anchor or is an alias"},
		"version on two lines":      {"spec:\n  version: \"v0.32\\\n    .2\"\n", set, "spec.version is not a plain value on one line"},
		"version as a block":        {"spec:\n  version: >-\n    v0.32.2\n", set, "spec.version is not a plain value on one line"},
		"duplicate name":            {"spec:\n  shards: [{name: gamma}]\n", add, "kcp.yaml after the edit: "},
		"tagged list":               {"spec:\n  shards: !!seq\n  - name: alpha\n", add, "cannot edit kcp.yaml: the list has an anchor or a tag"},
	} {
		t.Run(name, func(t *testing.T) {
			f := read(t, head+tc.text)
			_, err := tc.edit(f)
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, clierr.BadInput, clierr.Code(err))
			require.NotEmpty(t, clierr.Hint(err))
			require.Equal(t, head+tc.text, string(f.Data))
		})
	}
	merged := read(t, head+"<<: {spec: {shards: [{name: alpha}]}}\n")
	_, err := remove(merged)
	require.ErrorContains(t, err, "spec.shards is ")
	require.Equal(t, clierr.BadInput, clierr.Code(err))
	_, err = read(t, head).RemoveShard("alpha")
	require.EqualError(t, err, `kcp.yaml has no shard "alpha"`)
}

// The document of a file can have empty ones around it.
func TestEmptyDocuments(t *testing.T) {
	const text = "---\n# Our setup.\n---\n" + head + "spec:\n  shards:\n  - name: alpha\n---\n"
	f := read(t, text)
	added, err := f.AddShard(v1alpha1.Shard{Name: "beta"})
	require.NoError(t, err)
	require.Equal(t, "  - name: beta\n", inserted(t, f.Data, added.Data))
	back, err := added.RemoveShard("beta")
	require.NoError(t, err)
	require.Equal(t, text, string(back.Data))
	set, err := f.SetInstallation("demo-x7k2m9qd")
	require.NoError(t, err)
	require.Contains(t, string(set.Data), "metadata: {name: demo, installation: demo-x7k2m9qd}\n")
}

func TestCordonCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		on            bool
	}{
		"a new key": {
			"spec:\n  workloads:\n    clusters:\n    - name: c1 # first\n      context: eu\n    # The second.\n    - name: c2\n    apis: [services]\n",
			"spec:\n  workloads:\n    clusters:\n    - name: c1 # first\n      context: eu\n      unschedulable: true\n    # The second.\n    - name: c2\n    apis: [services]\n", true,
		},
		"the last item": {
			"spec:\n  workloads:\n    clusters:\n      - context: eu\n        name: c1\n  version: v0.32.3\n",
			"spec:\n  workloads:\n    clusters:\n      - context: eu\n        name: c1\n        unschedulable: true\n  version: v0.32.3\n", true,
		},
		"a key that exists": {
			"spec:\n  workloads:\n    clusters:\n    - {name: c2}\n    - {name: c1, context: eu, unschedulable: true} # full\n",
			"spec:\n  workloads:\n    clusters:\n    - {name: c2}\n    - {name: c1, context: eu, unschedulable: false} # full\n", false,
		},
		"flow": {
			"spec: {workloads: {clusters: [{name: c1, context: eu}, {name: c2}]}}\n",
			"spec: {workloads: {clusters: [{name: c1, context: eu, unschedulable: true}, {name: c2}]}}\n", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(t, head+tc.before).CordonCluster("c1", tc.on)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(head+tc.after, string(got.Data)))
			for _, c := range got.Setup.Spec.Workloads.Clusters {
				require.Equal(t, tc.on && c.Name == "c1", c.Unschedulable)
			}
		})
	}
	f := read(t, head)
	_, err := f.CordonCluster("c1", true)
	require.EqualError(t, err, `kcp.yaml has no cluster "c1" in spec.workloads.clusters`)
	_, err = f.RemoveCluster("c1")
	require.EqualError(t, err, `kcp.yaml has no cluster "c1" in spec.workloads.clusters`)
}

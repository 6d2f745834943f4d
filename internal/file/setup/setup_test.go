package setup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/examples"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// valid returns the text of every example and of every file in testdata/valid.
func valid(t testing.TB) map[string][]byte {
	out := map[string][]byte{}
	for _, name := range examples.Names() {
		data, err := examples.Read(name)
		require.NoError(t, err)
		out["examples/"+name] = data
	}
	for _, path := range files(t, "valid") {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		out[path] = data
	}
	return out
}

func files(t testing.TB, dir string) []string {
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths, "testdata/%s has no setup files", dir)
	return paths
}

func parse(t testing.TB, text string) *v1alpha1.Setup {
	f, err := Parse("kcp.yaml", []byte(text))
	require.NoError(t, err)
	return f.Setup
}

const minimal = "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata:\n  name: demo\n"

func TestInvalidFilesReportAllProblems(t *testing.T) {
	for _, path := range files(t, "invalid") {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			_, err = Parse(filepath.Base(path), data)
			require.Error(t, err)
			require.Equal(t, clierr.BadInput, clierr.Code(err))
			testutil.Golden(t, "invalid/"+name+".err", []byte(err.Error()+"\n"))
		})
	}
}

// A cache server of an early release has no flags for another etcd, whatever the others run.
func TestTheEtcdOfCacheServers(t *testing.T) {
	const managed, external = "{managed: {}}", `{external: {endpoints: ["http://etcd:2379"]}}`
	for name, tc := range map[string]struct {
		version, cache string
		refused        bool
	}{
		"managed":                 {"v0.30.3", "{etcd: " + managed + "}", true},
		"external":                {"v0.28.0", "{etcd: " + external + "}", true},
		"embedded":                {"v0.28.0", "{etcd: {embedded: {}}}", false},
		"the default":             {"v0.30.3", "{}", false},
		"the first that has it":   {"v0.31.0", "{etcd: " + managed + "}", false},
		"an image of another one": {"v0.30.3", "{image: {tag: v0.31.0}, etcd: " + managed + "}", false},
		"an earlier image":        {"v0.31.0", "{image: {tag: v0.30.3}, etcd: " + managed + "}", true},
		"a tag without a release": {"v0.30.3", "{image: {tag: main}, etcd: " + managed + "}", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("kcp.yaml", []byte(minimal+"spec: {version: "+tc.version+", cacheServer: "+tc.cache+"}\n"))
			if !tc.refused {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "spec.cacheServer.etcd: must be embedded, because a cache server of kcp before v0.31.0")
		})
	}
}

// A shard has one URL of virtual workspaces: that of the server that serves them.
func TestTheURLOfVirtualWorkspaces(t *testing.T) {
	of := func(server string) error {
		_, err := Parse("kcp.yaml", []byte(minimal+`spec:
  rootShard: {virtualWorkspaceURL: "https://root-vw.example.com"}
  shards: [{name: alpha, virtualWorkspaceURL: "https://alpha-vw.example.com"}]
  virtualWorkspaces: [`+server+"]\n"))
		return err
	}
	require.NoError(t, of("{name: own, shard: alpha, command: [/own]}"), "it serves beside the shard")
	require.ErrorContains(t, of("{name: vw, shard: alpha}"),
		"spec.shards[0].virtualWorkspaceURL: must not be set, because another server serves the virtual workspaces of this "+
			"shard: set spec.virtualWorkspaces[0].url")
	require.ErrorContains(t, of("{name: own, command: [/own]}, {name: vw}"),
		"spec.rootShard.virtualWorkspaceURL: must not be set, because another server serves the virtual workspaces of this "+
			"shard: set spec.virtualWorkspaces[1].url")
}

// Only names of Services are limited to those of a DNS label: those of Secrets are not.
func TestLongNames(t *testing.T) {
	for _, name := range []string{"production-europe-west-1", strings.Repeat("s", 42)} {
		s := parse(t, minimal+"spec: {shards: [{name: "+name+"}], kubeconfigs: [{name: "+strings.Repeat("k",
			63)+"}]}\n")
		require.Equal(t, name, s.Spec.Shards[0].Name)
	}
	external := "etcd: {external: {endpoints: [\"http://etcd:2379\"]}}"
	_, err := Parse("kcp.yaml", []byte(minimal+"spec: {"+external+", shards: [{name: "+strings.Repeat("s", 52)+"}]}\n"))
	require.NoError(t, err)
	_, err = Parse("kcp.yaml", []byte(minimal+"spec: {"+external+", shards: [{name: "+strings.Repeat("s", 53)+"}]}\n"))
	require.ErrorContains(t, err, "is 1 character too long")
	long := strings.Repeat("d", 45)
	_, err = Parse("kcp.yaml", []byte(strings.Replace(minimal, "demo", long, 1)+"spec: {workloads: {}}\n"))
	require.ErrorContains(t, err, "metadata.name: invalid value \""+long+"\": is ")
	require.NotContains(t, err.Error(), "controller\"", "the file does not have this name")
}

// YAML parsers interpret these numbers differently. kcpctl rejects them.
func TestAmbiguousNumbers(t *testing.T) {
	const place = minimal + "spec:\n  defaults:\n    "
	octal := " is ambiguous: octal in YAML 1.1 and decimal in YAML 1.2, write "
	text := " is ambiguous: a number in YAML 1.1 and text in YAML 1.2, write "
	for value, want := range map[string]string{
		"010": octal + "10", "00": octal + "0", "-010": octal + "-10", "+07": octal + "7", "08": octal + "8", "0100": octal + "100",
		"1_0": text + "10", "1_": text + "1", "0x1_0": text + "0x10", "0_1": text + "1",
		"1": "", "0": "", "0xA": "", "0o10": "", "10": "",
	} {
		t.Run(value, func(t *testing.T) {
			_, err := Parse("kcp.yaml", []byte(place+"logLevel: "+value+"\n"))
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "kcp.yaml:7:15: spec.defaults.logLevel: "+value+want)
			require.Equal(t, clierr.BadInput, clierr.Code(err))
		})
	}
	_, err := Parse("kcp.yaml", []byte(place+"replicas: 1_0\n    service: {spec: {ports: [{name: x, port: 0123, targetPort: 010}]}}\n"))
	require.ErrorContains(t, err, "kcp.yaml:7:15: spec.defaults.replicas: 1_0"+text+"10")
}

// The permissions of files are octal, as Kubernetes reads them.
func TestFileModesAreOctal(t *testing.T) {
	const pod = minimal + `spec:
  defaults:
    podTemplate:
      spec:
        volumes:
        - name: a
          secret: {secretName: a, defaultMode: %s, items: [{key: k, path: k, mode: %s}]}
`
	for value, want := range map[string]float64{"0400": 0o400, "0o400": 0o400, "256": 256} {
		volumes := fmt.Sprint(parse(t, fmt.Sprintf(pod, value, value)).Spec.Defaults.PodTemplate)
		require.Equal(t, 2, strings.Count(volumes, fmt.Sprintf("ode:%v", want)), volumes)
	}
	_, err := Parse("kcp.yaml", []byte(fmt.Sprintf(pod, "04_00", "0999")))
	require.ErrorContains(t, err, "defaultMode: 04_00 is ambiguous")
	require.ErrorContains(t, err, "mode: must be a whole number, not the number 0999")
	_, err = Parse("kcp.yaml", []byte(minimal+"spec: {defaults: {podTemplate: {spec: {priority: 010}}}}\n"))
	require.ErrorContains(t, err, "priority: 010 is ambiguous: octal")
}

func TestValidFilesSurviveMarshal(t *testing.T) {
	for name, data := range valid(t) {
		t.Run(name, func(t *testing.T) {
			f, err := Parse(name, data)
			require.NoError(t, err)
			text, err := Marshal(f.Setup)
			require.NoError(t, err)
			again, err := Parse(name, text)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(f.Setup, again.Setup))
			twice, err := Marshal(again.Setup)
			require.NoError(t, err)
			require.Equal(t, string(text), string(twice))
		})
	}
}

func TestMarshalShowsDefaults(t *testing.T) {
	for _, name := range []string{"minimal", "ha"} {
		data, err := examples.Read(name)
		require.NoError(t, err)
		text, err := Marshal(parse(t, string(data)))
		require.NoError(t, err)
		require.NotContains(t, string(text), "null")
		testutil.Golden(t, "marshal/"+name+".yaml", text)
	}
}

func TestMinimalExampleHasFourLines(t *testing.T) {
	data, err := examples.Read("minimal")
	require.NoError(t, err)
	require.Equal(t, strings.Replace(minimal, "name: demo", "name: minimal", 1), string(data))
}

func TestTopologyMeetsNoNil(t *testing.T) {
	for name, data := range valid(t) {
		t.Run(name, func(t *testing.T) {
			s := parse(t, string(data))
			require.NotEmpty(t, topology.Build(s).Components)
			require.NotEmpty(t, topology.BuildLocal(s, "state", nil).Components)
		})
	}
}

// The checked names are those of all rendered objects, except setup-wide ones, which are shorter.
func TestEveryObjectsNameIsChecked(t *testing.T) {
	for name, data := range valid(t) {
		t.Run(name, func(t *testing.T) {
			s := parse(t, string(data))
			s.Spec.PKI.KeyAlgorithm = v1alpha1.KeyECDSAP256 // quicker
			checked := map[string]bool{}
			for _, o := range (names{newValidator(s)}).objects() {
				checked[o.name] = true
			}
			top := topology.Build(s)
			made, err := pki.Ensure(top, &pki.State{}, pki.Options{Now: testutil.Start()})
			require.NoError(t, err)
			objects, err := render.Objects(top, made.State)
			require.NoError(t, err)
			for _, o := range objects {
				if o.Component.Kind() != topology.Base && o.Workspace == "" && o.GetNamespace() != "" {
					require.True(t, checked[o.GetName()], "%s %s", o.GetKind(), o.GetName())
				}
			}
		})
	}
}

func TestPosition(t *testing.T) {
	root, problem := parseYAML([]byte(minimal + `spec:
  defaults:
    resources:
      requests: {example.com/gpu.small: 1}
    podTemplate:
      metadata:
        labels:
          app.kubernetes.io/part-of: kcp
  shards:
  - cluster: default
    name: alpha
  frontProxies: [{name: main}]
`))
	require.Nil(t, problem)
	d := newDecoder()
	_, err := d.setup(root)
	require.NoError(t, err)
	for path, want := range map[string][2]int{
		"metadata.name":       {4, 9},
		"spec.shards":         {13, 3},
		"spec.shards[0]":      {14, 5},
		"spec.shards[0].name": {15, 11},
		"spec.defaults.resources.requests[example.com/gpu.small]":              {8, 41},
		"spec.defaults.podTemplate.metadata.labels[app.kubernetes.io/part-of]": {12, 38},
		"spec.shards[0].url":              {14, 5}, // the item
		"spec.external.hostname":          {5, 1},  // spec
		"spec.frontProxies[0].name":       {16, 25},
		"spec.frontProxies[7]":            {16, 3},
		"spec.defaults.resources[a.b][c]": {7, 5},
		"status":                          {1, 1},
		"":                                {1, 1},
	} {
		pos, _ := d.positions.of(path)
		require.Equal(t, want, [2]int{pos.line, pos.column}, path)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kcp.yaml")
	_, err := Load(path, nil)
	require.ErrorContains(t, err, "setup file "+path)
	require.Equal(t, clierr.BadInput, clierr.Code(err))
	require.Contains(t, clierr.Hint(err), "kcpctl init")

	require.NoError(t, os.WriteFile(path, []byte(minimal), 0o644))
	f, err := Load(path, nil)
	require.NoError(t, err)
	require.Equal(t, path, f.Name)
	require.Equal(t, minimal, string(f.Data))
	require.Equal(t, "demo", f.Setup.Metadata.Name)

	f, err = Load(Stdin, strings.NewReader(minimal))
	require.NoError(t, err)
	require.Equal(t, "<stdin>", f.Name)

	_, err = Load(Stdin, strings.NewReader("kind: Pod"))
	require.ErrorContains(t, err, "<stdin>:1:7: kind: must be Setup")

	_, err = Load(t.TempDir(), nil)
	require.Equal(t, clierr.BadInput, clierr.Code(err))
}

func TestErrorsAreProblems(t *testing.T) {
	_, err := Parse("kcp.yaml", []byte(minimal+"spec:\n  shards:\n  - nmae: alpha\n"))
	var problems Errors
	require.True(t, errors.As(err, &problems))
	require.Equal(t, Errors{{
		File: "kcp.yaml", Line: 7, Column: 5, Path: "spec.shards[0].nmae", Message: "unknown field", Hint: `did you mean "name"?`,
	}}, problems)
}

// An input is rejected with positions, or is the same setup after encoding and decoding.
func FuzzParse(f *testing.F) {
	for _, data := range valid(f) {
		f.Add(data)
	}
	for _, path := range files(f, "invalid") {
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("kcp.yaml", data)
		if err != nil {
			var problems Errors
			require.ErrorAs(t, err, &problems)
			for _, p := range problems {
				require.Positive(t, p.Line, p)
				require.Positive(t, p.Column, p)
			}
			return
		}
		topology.Build(file.Setup)
		text, err := Marshal(file.Setup)
		require.NoError(t, err)
		again, err := Parse("kcp.yaml", text)
		require.NoError(t, err, string(text))
		require.Empty(t, cmp.Diff(file.Setup, again.Setup))
	})
}

// A thousand shards take tens of milliseconds.
func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	text.WriteString(minimal + "spec:\n  shards:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - name: s%d\n    podTemplate: {spec: {nodeSelector: {disk: ssd}}}\n", i)
	}
	b.ReportAllocs()
	for b.Loop() {
		parse(b, text.String())
	}
}

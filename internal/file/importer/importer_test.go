package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/kcpctl/kcpctl/internal/api/release"
	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/file/setup"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// Each fixture becomes a setup file and findings, as in its golden files.
func TestImport(t *testing.T) {
	for name, options := range map[string]Options{
		"minimal": {}, "sharded": {}, "live": {}, "live-cache": {Live: true}, "dekker": {}, "comer": {}, "zheng": {}, "chart": {Namespace: "kcp-prod"}, "chart-etcd": {Name: "prod"},
		"samples": {}, "regions": {}, "chart-exposed": {Namespace: "kcp"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := Import(sources(t, name), options)
			require.NoError(t, err)
			testutil.Golden(t, name+"/golden/kcp.yaml", result.Text)
			testutil.Golden(t, name+"/golden/findings.txt", []byte(report(result.Findings)))
			require.NotContains(t, string(result.Text)+report(result.Findings), "secret-token")
		})
	}
}

func sources(t *testing.T, dir string) []Source {
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var out []Source
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		out = append(out, Source{Name: filepath.Base(f), Data: data})
	}
	return out
}

func report(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		b.WriteString(string(f.Kind) + ": " + f.String() + "\n")
	}
	return b.String()
}

const rootShard = `apiVersion: operator.kcp.io/v1alpha1
kind: RootShard
metadata: {name: root}
spec:
  external: {hostname: kcp.example.com, port: 6443}
  etcd: {endpoints: ["http://etcd:2379"]}
`

// All problems of the input are reported at once, at the fields that they come from.
func TestProblems(t *testing.T) {
	tests := map[string]struct{ input, want string }{
		"nothing": {"", "the input has nothing to import"},
		"syntax":  {"a: [\n", "in.yaml:2:1: invalid YAML: "},
		"list":    {"- a\n", "in.yaml:1:1: must be an object, not a list"},
		"types": {
			rootShard + "  replicas: two\n  image: v0.32.3\n  extraArgs: [verbose]\n",
			"in.yaml:7:13: spec.replicas: must be a whole number, not \"two\"\n" +
				"in.yaml:8:10: spec.image: must be an object, not \"v0.32.3\"\n" +
				"in.yaml:9:15: spec.extraArgs[0]: \"verbose\" is not a flag, write --name=value",
		},
		"invalid setup": {
			rootShard + "  image:\n    tag: v0.9.0\n  extraArgs: [--Bad=1]\n",
			"in.yaml:8:10: the setup file would be invalid: spec.version: ",
		},
		"of both steps": {
			strings.Replace(rootShard, "  etcd: {endpoints: [\"http://etcd:2379\"]}\n", "  extraArgs: [--Bad=1]\n  image: {repository: 7}\n", 1),
			"in.yaml:1:1: RootShard root: required: spec.etcd.endpoints\n" +
				"in.yaml:6:15: the setup file would be invalid: spec.rootShard.extraArgs[0]: invalid value \"--Bad=1\": must be --name=value or --name\n" +
				"in.yaml:7:23: spec.image.repository: must be a string",
		},
		"no name":  {strings.Replace(rootShard, "name: root", "labels: {}", 1), "in.yaml:1:1: RootShard: required: metadata.name"},
		"replicas": {rootShard + "  replicas: 0\n", "in.yaml:7:13: spec.replicas: invalid value 0: must be at least 1"},
		"flag":     {rootShard + "  extraArgs: [--Bad=1]\n", "in.yaml:7:15: the setup file would be invalid: spec.rootShard.extraArgs[0]: "},
		"reference": {
			rootShard + "---\napiVersion: operator.kcp.io/v1alpha1\nkind: FrontProxy\nmetadata: {name: main}\nspec: {rootShard: {ref: {name: rot}}}\n",
			`in.yaml:11:32: spec.rootShard.ref.name: the input has no RootShard "rot", known: root`,
		},
		"two installations": {rootShard + "---\n" + strings.Replace(rootShard, "root}", "other}", 1),
			"several RootShards"},
		"twice, not the same": {rootShard + "---\n" + strings.Replace(rootShard, "6443", "443", 1),
			"with another value of spec.external.port"},
		"twice": {rootShard + "---\n" + rootShard, "the object is also in in.yaml, line 1"},
		"no root shard": {
			"apiVersion: operator.kcp.io/v1alpha1\nkind: Shard\nmetadata: {name: alpha}\n",
			"in.yaml:1:1: Shard alpha: the input has no RootShard, add the file",
		},
		"namespaces": {
			rootShard + "---\napiVersion: operator.kcp.io/v1alpha1\nkind: FrontProxy\nmetadata: {name: main, namespace: other}\n",
			`the namespace is "other", but that of RootShard root is ""`,
		},
		"something else":   {"name: app\nport: 80\n", "in.yaml:1:1: neither a Kubernetes object nor values of the chart kcp"},
		"mixture":          {rootShard + "---\nexternalHostname: kcp.example.com\n", "values of a chart and objects of kcp-operator"},
		"deprecated chart": {"sharding: {enabled: true}\n", "in.yaml:1:11: sharding: a value of the deprecated charts"},
		"no etcd address":  {"etcd: {enabled: false}\n", "required: kcp.etcd.serverAddress"},
		"duplicate key":    {rootShard + "  replicas: 1\n  replicas: 2\n", "in.yaml:8:3: spec: duplicate key \"replicas\", first used on line 7"},
		"other kinds only": {"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "the input has no"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Import([]Source{{Name: "in.yaml", Data: []byte(tt.input)}}, Options{})
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, clierr.BadInput, clierr.Code(err))
		})
	}
}

// Every value of the fixtures is in the setup file, or a finding names its field.
func TestNothingIsDropped(t *testing.T) {
	for _, name := range []string{"minimal", "sharded", "live", "live-cache", "chart", "chart-etcd"} {
		t.Run(name, func(t *testing.T) {
			all := sources(t, name)
			result, err := Import(all, Options{})
			require.NoError(t, err)
			for _, s := range all {
				docs, problem := setup.Documents(s.Data)
				require.Nil(t, problem)
				for _, doc := range docs {
					if items := lookup(doc, "items"); items != nil {
						doc = items.Content[0]
					}
					requireMapped(t, result, strings.TrimSpace(scalar(doc, "kind")+" "+scalar(lookup(doc, "metadata"), "name")), "", doc)
				}
			}
		})
	}
}

// requireMapped checks the values below a field of an object. A value may be split, such as into a hostname and a port.
func requireMapped(t *testing.T, r *Result, object, path string, n *yaml.Node) {
	named := func(f Finding) bool {
		whole := len(f.Paths) == 0 && (f.Kind == NotMapped || f.Kind == NotNeeded) && f.Object == object
		return whole || (f.Object == object || object == "") && slices.Contains(f.Paths, path)
	}
	if slices.ContainsFunc(r.Findings, named) || strings.HasSuffix(path, ".enabled") || path == "kind" || path == "apiVersion" {
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		fields, _ := setup.Fields(n, nil)
		for _, f := range fields {
			requireMapped(t, r, object, strings.TrimPrefix(path+"."+f.Key.Value, "."), f.Value)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			requireMapped(t, r, object, fmt.Sprintf("%s[%d]", path, i), item)
		}
	case yaml.ScalarNode:
		if path == "spec.caBundleSecretRef.name" && strings.Contains(string(r.Text), "-----BEGIN CERTIFICATE-----") {
			return // the setup file has the content of the Secret
		}
		for _, part := range strings.FieldsFunc(n.Value, func(c rune) bool { return strings.ContainsRune(",:/", c) }) {
			require.Contains(t, string(r.Text), part, "%s: %s", object, path)
		}
	}
}

// Incomplete and strange documents are problems or findings, and never a panic.
func TestStrangeInput(t *testing.T) {
	const head = "apiVersion: operator.kcp.io/v1alpha1\nkind: RootShard\nmetadata: {name: root}\n"
	for _, input := range []string{
		head, head + "spec: null\n", head + "spec: []\n", head + "spec: {etcd: {endpoints: null, tlsConfig: null}, external: null}\n",
		head + "spec: {etcd: {endpoints: [a, null]}, extraArgs: [null, --a], extraVolumes: [null], image: {imagePullSecrets: [null]}}\n",
		"kind: RootShard\n", "apiVersion: v1\nkind: List\nitems: 3\n", "a: &a [*a]\n", "kcp: [1]\n", "kcp: &a {etcd: *a}\n",
		"{\n\t\"a\": 1\n}\n", strings.Replace(rootShard, "name: root", "name: My.Root", 1),
		"kcp: {v: 3, image: x, tag: nightly}\nkcpFrontProxy: {extraFlags: ['-v', '4', '--x', '--x=2']}\n",
	} {
		t.Run(input, func(t *testing.T) {
			result, err := Import([]Source{{Name: "in.yaml", Data: []byte(input)}}, Options{})
			if err == nil {
				t.Log(string(result.Text) + report(result.Findings))
				return
			}
			t.Log(err)
			require.Equal(t, clierr.BadInput, clierr.Code(err))
		})
	}
}

// The objects of a cluster have no positions. The setup leads to the cluster, and has a name that none of
// kcp-operator's Secrets has.
func TestLive(t *testing.T) {
	live := Options{Live: true, Context: "prod", Kubeconfig: "/home/me/config"}
	result, err := Import([]Source{{Name: "RootShard/root", Data: []byte(rootShard + "  certificates: {issuerRef: {name: x}}\n")}}, live)
	require.NoError(t, err)
	require.Contains(t, report(result.Findings), "not mapped: RootShard root: spec.certificates.issuerRef: ")
	require.Equal(t, "root-kcp", result.File.Setup.Metadata.Name)
	require.Equal(t, &v1alpha1.TakeOver{RootShard: "root"}, result.File.Setup.Spec.TakeOver)
	require.Equal(t, "prod", result.File.Setup.Spec.Clusters[0].Context)
	require.Equal(t, "/home/me/config", result.File.Setup.Spec.Clusters[0].Kubeconfig)

	live.Name = "root"
	result, err = Import([]Source{{Name: "RootShard/root", Data: []byte(rootShard)}}, live)
	require.NoError(t, err)
	require.Contains(t, report(result.Findings), "review: RootShard root: the Secret root-service-account of kcp-operator has the name of one of this setup")
}

// Problems do not hide findings: unknown fields are reported with them, with the fields of the same name elsewhere.
func TestProblemsAndFindings(t *testing.T) {
	result, err := Import([]Source{{Name: "in.yaml", Data: []byte(`apiVersion: operator.kcp.io/v1alpha1
kind: RootShard
metadata: {name: root}
spec:
  external: {hostname: kcp.example.com, port: 6443}
  etcd: {embedded: true}
  oidc: {issuerURL: "https://login.example.com"}
---
apiVersion: operator.kcp.io/v1alpha1
kind: FrontProxy
metadata: {name: main}
spec: {rootShard: {name: root}, replicas: many}
---
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: admin}
spec: {target: {name: main, kind: FrontProxy}}
`)}}, Options{Namespace: "kcp"})
	require.EqualError(t, err, `in.yaml:1:1: RootShard root: required: spec.etcd.endpoints
in.yaml:12:43: spec.replicas: must be a whole number, not "many"`)
	require.Equal(t, `review: in.yaml:1:1: RootShard root: the input does not say which release of kcp these objects run: RootShard root, FrontProxy main; the setup has the default of kcp-operator v0.9, v0.32.3, and each release of kcp-operator has another one; set spec.version to the release that runs, or image.tag of a component: kubectl get deployments -o wide
unknown: in.yaml:6:10: RootShard root: spec.etcd.embedded: the API operator.kcp.io/v1alpha1 does not have this field; remove it
unknown: in.yaml:7:3: RootShard root: spec.oidc: the API operator.kcp.io/v1alpha1 does not have this field; did you mean "auth.oidc"?
unknown: in.yaml:12:20: FrontProxy main: spec.rootShard.name: the API operator.kcp.io/v1alpha1 does not have this field; did you mean "ref.name"?
unknown: in.yaml:17:17: Kubeconfig admin: spec.target.name: the API operator.kcp.io/v1alpha1 does not have this field; did you mean "frontProxyRef.name" or "rootShardRef.name" or "shardRef.name"?
unknown: in.yaml:17:29: Kubeconfig admin: spec.target.kind: the API operator.kcp.io/v1alpha1 does not have this field; remove it
`, report(result.Findings))
	require.Empty(t, result.Text)
}

// The version of the chart says the release of kcp, unless the values do.
func TestReleaseOfTheChart(t *testing.T) {
	flux := func(chart, values string) string {
		return "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: kcp}\nspec:\n  chart:\n    spec: " + chart +
			"\n  values: {externalHostname: kcp.example.com, " + values + "}\n"
	}
	const (
		lookUp  = "set spec.version to the release that runs: kubectl get deployments -o wide"
		unknown = "review: in.yaml:6:33: HelmRelease kcp: spec.chart.spec.version: the values do not set kcp.tag and " +
			"kcpFrontProxy.tag, and kcpctl does not know the release of kcp in version "
		notSet = "kcp.tag is not set: the setup has the default release of kcpctl, v0.32.3"
	)
	for name, tc := range map[string]struct{ input, version, proxy, text, finding string }{
		"known":      {flux("{chart: kcp, version: 0.16.2}", "kcp: {replicas: 2}"), "v0.31.2", "", "# The release in version 0.16.2 of the chart.", ""},
		"with a v":   {flux("{chart: kcp, version: v0.14.1}", "kcp: {replicas: 2}"), "v0.30.3", "", "", ""},
		"Argo CD":    {"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: kcp}\nspec: {source: {chart: kcp, targetRevision: 0.16.3, helm: {valuesObject: {externalHostname: kcp.example.com}}}}\n", "v0.32.0", "", "", ""},
		"tags":       {flux("{chart: kcp, version: 0.16.2}", "kcp: {tag: v0.32.1}, kcpFrontProxy: {tag: v0.32.1}"), "v0.32.1", "", "", ""},
		"one tag":    {flux("{chart: kcp, version: 0.16.2}", "kcp: {tag: v0.31.6}"), "v0.31.6", "v0.31.2", "", ""},
		"a range":    {flux("{chart: kcp, version: 0.16.x}", "kcp: {replicas: 2}"), "v0.32.3", "", "", unknown + "0.16.x of the chart: the setup has v0.32.3; " + lookUp},
		"newer":      {flux("{chart: kcp, version: 9.0.0}", "kcp: {tag: v0.32.1}"), "v0.32.1", "", "", unknown + "9.0.0 of the chart: the setup has v0.32.1; " + lookUp},
		"in git":     {flux("{chart: charts/kcp, version: 0.16.2, sourceRef: {kind: GitRepository, name: kcp}}", "kcp: {replicas: 2}"), "v0.32.3", "", "", notSet},
		"no version": {flux("{chart: kcp}", "kcp: {replicas: 2}"), "v0.32.3", "", "", notSet},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := Import([]Source{{Name: "in.yaml", Data: []byte(tc.input)}}, Options{Namespace: "kcp"})
			require.NoError(t, err)
			spec := result.File.Setup.Spec
			require.Equal(t, tc.version, spec.Version)
			require.Equal(t, tc.proxy, spec.FrontProxies[0].Image.Tag)
			require.Contains(t, string(result.Text), tc.text)
			require.Contains(t, report(result.Findings), tc.finding)
			if tc.finding == "" {
				require.NotContains(t, report(result.Findings), ".tag")
			}
		})
	}
	for version, kcp := range chartReleases() {
		require.False(t, release.Older(kcp, release.Oldest), version)
	}
}

// What another tool installs is where this tool installs it, which is not where its own object is.
func TestNamespaceOfTheChart(t *testing.T) {
	const values = "{externalHostname: kcp.example.com}"
	flux := func(metadata, spec string) string {
		return "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: kcp" + metadata +
			"}\nspec: {chart: {spec: {chart: kcp, version: 0.16.2}}, values: " + values + spec + "}\n"
	}
	argo := func(spec string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: kcp, namespace: argocd}\n" +
			"spec: {source: {chart: kcp, helm: {valuesObject: " + values + "}}" + spec + "}\n"
	}
	helmChart := func(spec string) string {
		return "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: kcp, namespace: kube-system}\n" +
			"spec: {chart: kcp, valuesContent: x" + spec + "}\n---\n" + values + "\n"
	}
	for name, tc := range map[string]struct{ input, want string }{
		"Flux":                     {flux(", namespace: flux-system", ", targetNamespace: prod"), "prod"},
		"Flux, its own":            {flux(", namespace: control", ""), "control"},
		"Flux, neither":            {flux("", ""), "flag"},
		"Argo CD":                  {argo(", destination: {namespace: prod}"), "prod"},
		"Argo CD, none":            {argo(""), "flag"},
		"Helm controller":          {helmChart(", targetNamespace: prod"), "prod"},
		"Helm controller, its own": {helmChart(""), "kube-system"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := Import([]Source{{Name: "in.yaml", Data: []byte(tc.input)}}, Options{Namespace: "flag"})
			require.NoError(t, err)
			require.Equal(t, tc.want, result.File.Setup.Spec.Clusters[0].Namespace)
		})
	}
}

// Values are also read in the objects with which other tools install the chart, or the finding says where they are.
func TestValuesInReleases(t *testing.T) {
	const values = "{externalHostname: kcp.example.com, externalPort: 443, kcp: {replicas: 3, colour: red}}"
	for name, tc := range map[string]struct{ input, finding, refused string }{
		"Flux": {"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: kcp, labels: {a: b}}\nspec:\n  chart: {spec: {chart: kcp}}\n  valuesFrom: [{kind: Secret, name: more}]\n  values: " + values + "\nstatus: {}\n",
			"not mapped: in.yaml:1:1: HelmRelease kcp: import does not read values in spec.valuesFrom; write them to a file", ""},
		"Argo CD": {"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: kcp}\nspec: {source: {chart: kcp, helm: {valuesObject: " + values + "}}}\n",
			"not needed: in.yaml:1:1: Application kcp: import reads the values in spec.source.helm.valuesObject", ""},
		"a cluster of Flux": {"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: kcp}\nspec: {kubeConfig: {secretRef: {name: prod}}, values: " + values + "}\n",
			"not mapped: in.yaml:1:1: HelmRelease kcp: import does not read the cluster in spec.kubeConfig; set the kubeconfig context", ""},
		"a cluster of Argo CD": {"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: kcp}\nspec: {destination: {server: https://prod}, source: {chart: kcp, helm: {valuesObject: " + values + "}}}\n",
			"not mapped: in.yaml:1:1: Application kcp: import does not read the cluster in spec.destination.server; set", ""},
		"the name of a release": {"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: kcp}\nspec: {source: {chart: kcp, helm: {releaseName: a, valuesObject: " + values + "}}}\n",
			"not needed: in.yaml:1:1: Application kcp: objects have the name of the setup, and not that in spec.source.helm.releaseName", ""},
		"a text": {"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: kcp}\nspec: {source: {chart: kcp, helm: {values: \"kcp: {}\"}}}\n",
			"not mapped: in.yaml:1:1: Application kcp: import does not read values in spec.source.helm.values; write them to a file", "no values of the chart"},
		"files of values": {"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: kcp}\nspec: {chart: {spec: {chart: kcp, valuesFiles: [prod.yaml]}}, values: " + values + "}\n",
			"not mapped: in.yaml:1:1: HelmRelease kcp: import does not read values in spec.chart.spec.valuesFiles; write them", ""},
		"patches": {"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: kcp}\nspec: {postRenderers: [{kustomize: {}}], values: " + values + "}\n",
			"not mapped: in.yaml:1:1: HelmRelease kcp: import does not read what spec.postRenderers changes in objects", ""},
		"another chart": {"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: dns}\nspec: {chart: {spec: {chart: dns}}, values: {etcd: {enabled: true}}}\n---\n" + values + "\n",
			"not mapped: in.yaml:1:1: HelmRelease dns: import does not read this kind", ""},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := Import([]Source{{Name: "in.yaml", Data: []byte(tc.input)}}, Options{})
			if tc.refused != "" {
				require.ErrorContains(t, err, tc.refused)
			} else {
				require.NoError(t, err)
				require.Equal(t, "kcp.example.com", result.File.Setup.Spec.External.Hostname)
				require.EqualValues(t, 3, result.File.Setup.Spec.RootShard.Replicas)
				require.Contains(t, report(result.Findings), ": values: kcp.colour: ")
			}
			require.Contains(t, report(result.Findings), tc.finding)
		})
	}
}

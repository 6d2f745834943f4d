package importer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// secondShard is a shard in the etcd of the root shard, with further fields of its spec.
const secondShard = `---
apiVersion: operator.kcp.io/v1alpha1
kind: Shard
metadata: {name: alpha}
spec:
  rootShard: {ref: {name: root}}
  etcd: {endpoints: ["http://etcd:2379"], prefix: /alpha}
`

// The flags that kcp-operator sets after extraArgs decide: the URL of the server that serves the virtual
// workspaces of a shard, and the prefix in etcd.
func TestFlagsThatKcpOperatorSetsAgain(t *testing.T) {
	spec, findings := imported(t, `  kcpVirtualWorkspace: {name: vw}
  extraArgs: ["--shard-virtual-workspace-url=https://public.example.com"]
`, "", secondShard+`  extraArgs: [--etcd-prefix=/other]
---
apiVersion: operator.kcp.io/v1alpha1
kind: VirtualWorkspace
metadata: {name: vw}
spec: {target: {rootShardRef: {name: root}}, external: {hostname: vw.example.com}}
`)
	require.Empty(t, spec.RootShard.VirtualWorkspaceURL)
	require.Len(t, spec.VirtualWorkspaces, 1)
	require.Equal(t, "https://vw.example.com:6443", spec.VirtualWorkspaces[0].URL)
	require.Contains(t, report(findings), "spec.extraArgs[0]: kcp-operator sets the flag again, to the address of the "+
		"VirtualWorkspace vw")
	require.Equal(t, "/alpha", spec.Shards[0].Etcd.External.Prefix)
	require.Contains(t, report(findings), "spec.extraArgs[0]: kcp-operator sets the flag again, to spec.etcd.prefix")
}

// Flags that a field says move to it, so that a setup has one truth about where data is and how shards are reached.
func TestFlagsBecomeFields(t *testing.T) {
	spec, findings := imported(t, `  extraArgs: [--anonymous-auth, --etcd-prefix=/shard/root, --shard-virtual-workspace-url, "https://vw.example.com:6443", -v=4]
`, `  extraArgs: [--authentication-pass-on-groups=example, "--authentication-drop-groups=a,b"]
`, secondShard+`  extraArgs: ["--etcd-prefix=/first", "--etcd-servers=https://a:2379,https://b:2379", "--etcd_prefix=/shard/alpha",
    --shard-base-url=https://alpha.example.com:6443, --etcd-cafile=/certs/ca.crt, --etcd-certfile=/certs/tls.crt, --etcd-keyfile=/certs/tls.key]
  extraVolumes: [{name: certs, secret: {secretName: etcd-client}}]
  extraVolumeMounts: [{name: certs, mountPath: /certs}]
`)
	root, alpha, proxy := spec.RootShard, spec.Shards[0], spec.FrontProxies[0]
	require.Equal(t, "/shard/root", root.Etcd.External.Prefix)
	require.Equal(t, "https://vw.example.com:6443", root.VirtualWorkspaceURL)
	require.Equal(t, []string{"--v=4"}, root.ExtraArgs)
	require.NotContains(t, report(findings), "anonymous-auth", "true is the default")
	require.Equal(t, "/shard/alpha", alpha.Etcd.External.Prefix, "the last one is the one in use")
	require.Equal(t, []string{"https://a:2379", "https://b:2379"}, alpha.Etcd.External.Endpoints)
	require.Equal(t, "etcd-client", alpha.Etcd.External.TLSSecret)
	require.Equal(t, "https://alpha.example.com:6443", alpha.URL)
	require.Empty(t, alpha.ExtraArgs)
	require.Equal(t, []string{"a", "b"}, proxy.Authentication.DropGroups)
	require.Equal(t, []string{"example"}, proxy.Authentication.PassOnGroups)
	require.Empty(t, proxy.ExtraArgs)
	require.Contains(t, report(findings), "spec.extraArgs[1]: the input replaces kcp's list of removed groups")
}

// Flags that kcpctl computes, and flags of files that are in no Secret, are findings, and not arguments.
func TestFlagsThatAreNotMapped(t *testing.T) {
	spec, findings := imported(t, "  extraArgs: [--client-ca-file=/ca.crt, --shard-name=main, --etcd-cafile=/nowhere/ca.crt, --anonymous-auth=false]\n",
		"  extraArgs: [--tls-sni-cert-key=/a.crt, --cors-allowed-origins=example.com]\n")
	require.Empty(t, spec.RootShard.ExtraArgs)
	require.Equal(t, []string{"--cors-allowed-origins=example.com"}, spec.FrontProxies[0].ExtraArgs)
	for _, want := range []string{
		"not mapped: in.yaml:7:15: RootShard root: spec.extraArgs[0]: extraArgs cannot set --client-ca-file: ",
		"spec.extraArgs[1]: extraArgs cannot set --shard-name: ",
		"spec.extraArgs[2]: extraArgs cannot set --etcd-cafile; set etcd.external.tlsSecret",
		"spec.extraArgs[3]: extraArgs cannot set --anonymous-auth; set spec.authentication.anonymous",
		"spec.extraArgs[0]: extraArgs cannot set --tls-sni-cert-key; set serving",
	} {
		require.Contains(t, report(findings), want)
	}
}

// Feature gates stay at their component, unless one is about mounts, which no shard may have that clients outside of
// its cluster reach.
func TestFeatureGatesOfMounts(t *testing.T) {
	const mounts = "  extraArgs: [\"--feature-gates=WorkspaceMounts=true,CacheAPIs=true\"]\n"
	for name, tc := range map[string]struct {
		shard, more string
		gates       map[string]bool
		finding     string
	}{
		"none":      {"  extraArgs: [--feature-gates=CacheAPIs=true]\n", "", nil, ""},
		"off":       {"  extraArgs: [--feature-gates=WorkspaceMounts=false]\n", "", map[string]bool{"WorkspaceMounts": false}, ""},
		"all alpha": {"  extraArgs: [--feature-gates=AllAlpha=true]\n", "", map[string]bool{"AllAlpha": true, "WorkspaceMounts": true}, "feature gates of mounts"},
		"mounts":    {mounts, "", map[string]bool{"WorkspaceMounts": true, "CacheAPIs": true}, "review: in.yaml:7:15: RootShard root: spec.extraArgs[0]: feature gates of mounts"},
		"of one":    {mounts, secondShard + "  extraArgs: [--feature-gates=OpenAPIEnums=true]\n", map[string]bool{"WorkspaceMounts": true, "CacheAPIs": true, "OpenAPIEnums": true}, "Shard alpha: spec.extraArgs[0]: feature gates of mounts"},
		"unknown":   {mounts, secondShard + "  extraArgs: [--feature-gates=Other=true]\n", map[string]bool{"WorkspaceMounts": true, "CacheAPIs": true}, "Shard alpha: spec.extraArgs[0]: kcp does not list the feature gate Other"},
		"exposed":   {mounts + "  shardBaseURL: https://root.example.com:8443\n", "", map[string]bool{"WorkspaceMounts": false, "CacheAPIs": true}, "not mapped: in.yaml:7:15: RootShard root: spec.extraArgs[0]: WorkspaceMounts is off"},
		"a Service": {mounts + "  serviceTemplate: {spec: {type: LoadBalancer}}\n", "", map[string]bool{"WorkspaceMounts": false, "CacheAPIs": true}, "WorkspaceMounts is off"},
	} {
		t.Run(name, func(t *testing.T) {
			spec, findings := imported(t, tc.shard, "", tc.more)
			require.Equal(t, tc.gates, spec.FeatureGates)
			require.Equal(t, tc.gates == nil, len(spec.RootShard.ExtraArgs) == 1)
			require.Contains(t, report(findings), tc.finding)
		})
	}
}

// A flag that moved to a field has its position in the errors of this field.
func TestProblemsOfFlags(t *testing.T) {
	_, err := Import([]Source{{Name: "in.yaml", Data: []byte(rootShard + "  extraArgs: [--etcd-prefix=kcp]\n")}}, Options{})
	problems, ok := asErrors(err)
	require.True(t, ok)
	require.Equal(t, setup.Problem{File: "in.yaml", Line: 7, Column: 15, Message: problems[0].Message}, problems[0])
	require.Contains(t, err.Error(), "spec.rootShard.etcd.external.prefix")
}

// The chart's kcp has the same flags, and endpoints of an etcd may end with a slash.
func TestFlagsOfTheChart(t *testing.T) {
	result, err := Import([]Source{{Name: "values.yaml", Data: []byte(`externalHostname: kcp.example.com
etcd: {enabled: false}
kcp:
  etcd: {serverAddress: "https://etcd.example.com:2379/"}
  extraFlags: ["--etcd-prefix=/own", "--etcd-cafile=/e/ca.crt", "--etcd-certfile=/e/tls.crt", "--etcd-keyfile=/e/tls.key"]
  extraVolumes: [{name: e, secret: {secretName: my-etcd}}]
  extraVolumeMounts: [{name: e, mountPath: /e}]
kcpFrontProxy:
  extraFlags: ["--authentication-drop-groups=", --client-ca-file=/ca.crt]
`)}}, Options{Namespace: "kcp"})
	require.NoError(t, err)
	spec := result.File.Setup.Spec
	require.Equal(t, &v1alpha1.ExternalEtcd{Endpoints: []string{"https://etcd.example.com:2379"}, Prefix: "/own", TLSSecret: "my-etcd"}, spec.RootShard.Etcd.External)
	require.Empty(t, spec.FrontProxies[0].ExtraArgs)
	require.Contains(t, report(result.Findings), "values: kcpFrontProxy.extraFlags[1]: extraArgs cannot set --client-ca-file: ")
}

// Several files are one, as for helm: later ones replace lists, and add to objects. Findings name the file.
func TestSeveralFilesOfTheChart(t *testing.T) {
	sources := []Source{{Name: "values.yaml", Data: []byte(`externalHostname: kcp.example.com
fullnameOverride: prod
kcp:
  extraFlags: [--v=3, --cors-allowed-origins=example.com]
  resources: {requests: {cpu: 100m, memory: 1Gi}}
  nodeSelector: {disk: ssd, rack: r1}
  color: red
kcpFrontProxy: {resources: {limits: {cpu: 1}}}
`)}, {Name: "values-prod.yaml", Data: []byte(`kcp:
  extraFlags: [--v=4]
  resources: {requests: {cpu: 200m}, limits: {memory: 2Gi}}
  nodeSelector: {zone: a, rack: null}
kcpFrontProxy: {resources: null}
`)}}
	result, err := Import(sources, Options{Namespace: "kcp"})
	require.NoError(t, err)
	require.Equal(t, "prod", result.File.Setup.Metadata.Name)
	root, proxy := result.File.Setup.Spec.RootShard, result.File.Setup.Spec.FrontProxies[0]
	require.Equal(t, []string{"--v=4"}, root.ExtraArgs)
	require.Equal(t, "200m", root.Resources.Requests.Cpu().String())
	require.Equal(t, "1Gi", root.Resources.Requests.Memory().String())
	require.Equal(t, "2Gi", root.Resources.Limits.Memory().String())
	require.Contains(t, string(result.File.Data), "disk: ssd")
	require.Contains(t, string(result.File.Data), "zone: a")
	require.NotContains(t, string(result.File.Data), "rack", "null removes")
	require.Empty(t, proxy.Resources.Limits, "null removes")
	require.Contains(t, report(result.Findings), "values.yaml:7:3: values: kcp.color: ")

	sources[0].Data = append(sources[0].Data, "etcd: {enabled: maybe}\nexternalPort: many\n"...)
	_, err = Import(sources, Options{Namespace: "kcp"})
	require.ErrorContains(t, err, "values.yaml:10:15: externalPort: ")
}

// A Prometheus that read the metrics of one component of the chart reads those of all. Earlier releases cannot let it.
func TestMonitoringOfTheChart(t *testing.T) {
	for tag, want := range map[string]*v1alpha1.Monitoring{
		"v0.32.3": {PrometheusOperator: &v1alpha1.PrometheusOperator{}}, "v0.31.6": nil,
	} {
		result, err := Import([]Source{{Name: "values.yaml", Data: []byte(`externalHostname: kcp.example.com
kcp: {tag: ` + tag + `, monitoring: {serviceMonitor: {enabled: true}}}
kcpFrontProxy: {tag: ` + tag + `, monitoring: {serviceMonitor: {enabled: false}}}
`)}}, Options{Namespace: "kcp"})
		require.NoError(t, err)
		require.Equal(t, want, result.File.Setup.Spec.Monitoring)
		require.Equal(t, want == nil, strings.Contains(report(result.Findings), "only administrators can read the metrics"))
	}
}

// Package topologytest builds setups and topologies for tests, from the text of a setup file.
package topologytest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/file/setup"
)

// Header starts a setup file. On its own it is the smallest valid one.
const Header = "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\n"

// LocalDir is the state directory of a topology from BuildLocal.
const LocalDir = "/state/demo"

// EveryKind is a setup file that has components of all kinds with extraArgs, with what adds flags to them.
const EveryKind = `spec:
  external: {hostname: kcp.example.com}
  featureGates: {WorkspaceMounts: true}
  authorization: {webhook: {secret: hook, cacheAuthorizedTTL: 1m, cacheUnauthorizedTTL: 1m}, alwaysAllowPaths: [/version],
    order: [AlwaysAllowGroups, AlwaysAllowPaths, RBAC, Webhook]}
  homeWorkspaces: {creatorGroups: [staff]}
  defaults: {logFormat: json, profilerPort: 6060}
  audit:
    policy: {rules: [{level: Metadata}]}
    log: &backend
      {mode: batch, batchBufferSize: 1, batchMaxSize: 1, batchMaxWait: 1s, batchThrottleEnable: true, batchThrottleQPS: 1,
       batchThrottleBurst: 1, truncateMaxBatchSize: 9, truncateMaxEventSize: 9}
    webhook: {<<: *backend, secret: hook, initialBackoff: 1s}
  authentication:
    mode: Everywhere
    oidc: {issuerURL: "https://login.example.com", clientID: kcp}
    tokenFile: {secret: tokens}
    webhook: {secret: hook}
    dropGroups: [a]
    passOnGroups: [b]
  cacheServer: {etcd: {managed: {quota: 1Gi, autoCompaction: 1h}}}
  shards:
  - {name: alpha}
  - {name: beta, etcd: {external: {endpoints: ["https://etcd.example.com:2379"], tlsSecret: etcd}}}
  - {name: gamma, etcd: {embedded: {}}}
  virtualWorkspaces: [{name: alpha, shard: alpha}]
  agents:
  - {name: widgets, workspace: "root:widgets", publishedResources: [{name: widgets, spec: {resource: {kind: Widget, apiGroup: example.com, versions: [v1]}}}]}
  workloads: {}
`

// firstLocalPort is the lowest port of a topology from BuildLocal.
const firstLocalPort = 7000

// File returns a complete setup file. A text without an apiVersion, such as "spec: {shards: [{name: alpha}]}", gets
// Header.
func File(text string) string {
	if strings.Contains(text, "apiVersion: kcpctl.dev/") {
		return text
	}
	return Header + text
}

// Setup reads a setup file with its defaults, and fails the test if the file is not valid.
func Setup(t testing.TB, text string) *v1alpha1.Setup {
	t.Helper()
	f, err := setup.Parse("kcp.yaml", []byte(File(text)))
	require.NoError(t, err)
	return f.Setup
}

// Build builds the topology of a setup file for Kubernetes clusters.
func Build(t testing.TB, text string) *topology.Topology {
	t.Helper()
	return topology.Build(Setup(t, text))
}

// BuildLocal builds the topology of a setup file for this machine, with ports from 7000 in the order of
// topology.PortNames.
func BuildLocal(t testing.TB, text string) *topology.Topology {
	t.Helper()
	return LocalOf(Setup(t, text))
}

// LocalOf builds the topology of a setup for this machine, as BuildLocal does.
func LocalOf(s *v1alpha1.Setup) *topology.Topology {
	ports := map[string]int32{}
	for i, name := range topology.PortNames(s) {
		ports[name] = firstLocalPort + int32(i)
	}
	return topology.BuildLocal(s, LocalDir, ports)
}

// Random returns the specification of a random setup on one to three clusters.
func Random(rnd *rand.Rand) string {
	var b strings.Builder
	b.WriteString("spec:\n  external: {hostname: kcp.example.com}\n")
	fmt.Fprintf(&b, "  etcd: %s\n", []string{"{managed: {}}", "{embedded: {}}", "{external: {endpoints: [\"http://etcd:2379\"]}}"}[rnd.IntN(3)])
	clusters := []string{"eu", "us", "asia"}[:1+rnd.IntN(3)]
	b.WriteString("  clusters: [")
	for _, c := range clusters {
		fmt.Fprintf(&b, "{name: %s, namespace: kcp-%s}, ", c, c)
	}
	b.WriteString("]\n")
	place := func(name string) string {
		if len(clusters) == 1 && rnd.IntN(3) > 0 {
			return "cluster: eu"
		}
		return fmt.Sprintf("cluster: %s, url: \"https://%s.example.com:6443\"", clusters[rnd.IntN(len(clusters))], name)
	}
	if rnd.IntN(2) == 0 {
		fmt.Fprintf(&b, "  cacheServer: {%s}\n", place("cache"))
	}
	fmt.Fprintf(&b, "  rootShard: {%s}\n  shards:\n", place("root"))
	shards := rnd.IntN(6)
	for i := range shards {
		fmt.Fprintf(&b, "  - {name: s%d, %s}\n", i, place(fmt.Sprintf("s%d", i)))
	}
	b.WriteString("  frontProxies:\n")
	for i := range 1 + rnd.IntN(3) {
		fmt.Fprintf(&b, "  - {name: p%d, cluster: %s}\n", i, clusters[rnd.IntN(len(clusters))])
	}
	b.WriteString("  virtualWorkspaces:\n")
	for i := range rnd.IntN(shards + 1) {
		fmt.Fprintf(&b, "  - {name: v%d, shard: s%d, %s}\n", i, i, place(fmt.Sprintf("v%d", i)))
	}
	return b.String()
}

package long

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterZones runs a setup over two clusters and four namespaces through its life cycle. TestClusterZonesCut
// rotates its authorities.
func TestClusterZones(t *testing.T) {
	s, z := framework.NewZones(t, framework.OlderRelease)
	for _, part := range []struct {
		name string
		do   func(t *testing.T, s *framework.Setup)
	}{
		{"one up", func(t *testing.T, s *framework.Setup) { s.Up(t) }},
		{"status", framework.IsReady},
		{"shards are registered", framework.Shards},
		{"workspaces on every shard", framework.CreateWorkspaces},
		{"workspaces on every shard through the second front-proxy", createThroughEdge},
		{"a token is valid at the front-proxy that knows its issuer", z.Tokens},
		{"a second up writes nothing", framework.ChangesNothing},
		{"diff is empty", func(t *testing.T, s *framework.Setup) { s.Kcpctl(t, "diff").OK(t) }},
		{"checks pass", func(t *testing.T, s *framework.Setup) { s.Check(t, "--wait", "1m").Passes(t) }},
		{"render is what up applies", framework.RendersWhatRuns},
		{"authorities' keys stay in the store", framework.KeepsKeys},
		{"places hold what their components need", z.HoldNoForeignKeys},
		{"upgrade", upgradeEverywhere},
		{"a shard is added to the second cluster", z.AddShard},
		{"renew", func(t *testing.T, s *framework.Setup) {
			s.Certs(t, "renew", "--skip-canary", "--parallel", "3").OK(t).Quiet(t)
		}},
		{"status after all of it", framework.IsReady},
		{"down --purge leaves nothing", framework.LeavesNothing},
	} {
		framework.Step(t, part.name, func(t *testing.T) { part.do(t, s) })
	}
}

func upgradeEverywhere(t *testing.T, s *framework.Setup) {
	s.Kcpctl(t, "upgrade", framework.NewerRelease, "--parallel", "3").OK(t).Quiet(t)
	for _, c := range s.BecomesReady(t).Components {
		require.Equal(t, framework.NewerRelease, c.Version, c)
	}
	raw, err := os.ReadFile(s.File)
	require.NoError(t, err)
	s.Text = string(raw)
	framework.ReadWorkspaces(t, s)
	framework.ReadThroughEdge(t, s)
}

const edgeWorkspace = `---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: edge-%[1]s}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {name: %[1]s}}}
`

// createThroughEdge creates a workspace on each shard through the front-proxy of the second cluster, and reads all
// workspaces through it.
func createThroughEdge(t *testing.T, s *framework.Setup) {
	manifests := ""
	var names []string
	for _, shard := range framework.ShardNames() {
		manifests += fmt.Sprintf(edgeWorkspace, shard)
		names = append(names, "edge-"+shard)
	}
	create := s.Command("kubeconfig", append(framework.AsEdge("root"), "--", "kubectl", "create", "--filename", "-")...)
	create.Stdin = manifests
	create.Run(t.Context(), t).OK(t)
	s.KubectlAs(t, framework.AsEdge("root"), append(append([]string{"wait", "workspaces"}, names...), "--for=jsonpath={.status.phase}=Ready", "--timeout=3m")...).OK(t)
	for _, shard := range framework.ShardNames() {
		on := []string{"get", "workspace", "edge-" + shard, "--output", `jsonpath={.metadata.annotations.core\.kcp\.io/shard}`}
		require.NoError(t, s.Reads(t, shard, []string{"admin"}, on...))
	}
	framework.ReadThroughEdge(t, s)
}

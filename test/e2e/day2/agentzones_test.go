package day2

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// agentZones is a kcp on one cluster whose virtual workspaces are reached from another one.
const agentZones = `
  external: {hostname: %[4]s, port: %[5]d}
  clusters:
  - {name: eu, kubeconfig: %[2]s, namespace: %[1]s-eu}
  - {name: services, kubeconfig: %[3]s, namespace: %[1]s-services}
  etcd: {embedded: {ephemeral: true}}
  frontProxies: [{name: main, expose: NodePort}]
  rootShard: {expose: NodePort, url: "https://%[4]s:%[6]d"}
  shards:
  - {name: alpha, expose: NodePort, url: "https://%[4]s:%[7]d"}
  - {name: beta, expose: NodePort, url: "https://%[4]s:%[8]d"}`

// TestClusterAgentZones runs an agent on a cluster whose pod network is not connected to that of kcp.
func TestClusterAgentZones(t *testing.T) {
	first, second := framework.Given(t, "E2E_KUBECONFIG"), os.Getenv("E2E_KUBECONFIG_B")
	if second == "" {
		t.Skip("E2E_KUBECONFIG_B is not set: this test needs a second cluster")
	}
	z := framework.NewPlaces(t, map[string]string{framework.Home: first, "services": second})
	s := framework.NewSetup(t, "minimal", z.Setup, z.State, z)
	const port = framework.AgentZonesPort
	spec := fmt.Sprintf(agentZones, s.Name, first, second, z.Places[framework.Home].Address(t), port, port+1, port+2, port+3)
	s.Text = fmt.Sprintf(framework.AgentSetup, s.Name, spec) + fmt.Sprintf(framework.WidgetAgent, s.Name, "\n    cluster: services")
	s.Write(t, s.Text)
	a := framework.NewAgents(t, s, z.Places["services"], "b")
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"a shard whose virtual workspaces the agent cannot reach", func(t *testing.T) {
			a.Write(t, strings.ReplaceAll(a.Text, fmt.Sprintf(`, url: "https://%s:%d"`, z.Places[framework.Home].Address(t), port+3), ""))
			a.Kcpctl(t, "up").Refused(t, 2, "spec.shards[1].virtualWorkspaceURL", "agent/widgets")
			own := fmt.Sprintf(`url: "https://%s:%d"`, z.Places[framework.Home].Address(t), port+3)
			a.Write(t, strings.ReplaceAll(a.Text, own, fmt.Sprintf(`%s, virtualWorkspaceURL: "https://%s-shard-beta.%s-eu.svc:6443"`, own, s.Name, s.Name)))
			a.Kcpctl(t, "up").Refused(t, 1, "agent/widgets on cluster services dials shard/beta", "virtualWorkspaceURL")
			require.Empty(t, a.Left(t.Context(), t), "nothing was to be written")
			a.Write(t, a.Text)
		}},
		{"one up", func(t *testing.T) { a.Up(t) }},
		{"a Widget of a workspace on another shard", func(t *testing.T) {
			a.IsOn(t, "team", "beta")
			a.Serves(t, framework.Consumer, "first")
		}},
		{"a second up writes nothing", a.Settled},
		{"the credential of the agent", a.Confined},
		{"deleted objects leave", func(t *testing.T) { a.Release(t, framework.Consumer, "first") }},
		{"down leaves nothing", a.LeavesNothing},
	} {
		framework.Step(t, part.name, part.do)
	}
}

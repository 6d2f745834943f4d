//go:build e2e && long && day2

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	first, second := given(t, "E2E_KUBECONFIG"), os.Getenv("E2E_KUBECONFIG_B")
	if second == "" {
		t.Skip("E2E_KUBECONFIG_B is not set: this test needs a second cluster")
	}
	z := newPlaces(t, map[string]string{home: first, "services": second})
	s := newSetup(t, "minimal", z.setup, z.state, z)
	const port = agentZonesPort
	spec := fmt.Sprintf(agentZones, s.name, first, second, z.places[home].address(t), port, port+1, port+2, port+3)
	s.text = fmt.Sprintf(agentSetup, s.name, spec) + fmt.Sprintf(widgetAgent, s.name, "\n    cluster: services")
	s.write(t, s.text)
	a := newAgents(t, s, z.places["services"], "b")
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"a shard whose virtual workspaces the agent cannot reach", func(t *testing.T) {
			a.write(t, strings.ReplaceAll(a.text, fmt.Sprintf(`, url: "https://%s:%d"`, z.places[home].address(t), port+3), ""))
			a.kcpctl(t, "up").refused(t, 2, "spec.shards[1].virtualWorkspaceURL", "agent/widgets")
			own := fmt.Sprintf(`url: "https://%s:%d"`, z.places[home].address(t), port+3)
			a.write(t, strings.ReplaceAll(a.text, own, fmt.Sprintf(`%s, virtualWorkspaceURL: "https://%s-shard-beta.%s-eu.svc:6443"`, own, s.name, s.name)))
			a.kcpctl(t, "up").refused(t, 1, "agent/widgets on cluster services dials shard/beta", "virtualWorkspaceURL")
			require.Empty(t, a.left(t.Context(), t), "nothing was to be written")
			a.write(t, a.text)
		}},
		{"one up", func(t *testing.T) { a.up(t) }},
		{"a Widget of a workspace on another shard", func(t *testing.T) {
			a.isOn(t, "team", "beta")
			a.serves(t, consumer, "first")
		}},
		{"a second up writes nothing", a.settled},
		{"the credential of the agent", a.confined},
		{"deleted objects leave", func(t *testing.T) { a.release(t, consumer, "first") }},
		{"down leaves nothing", a.leavesNothing},
	} {
		step(t, part.name, part.do)
	}
}

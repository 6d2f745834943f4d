//go:build e2e && long && day2

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The links that a test can cut.
const (
	// betweenNodes is the link between the clusters. kcpctl reaches both.
	betweenNodes = "nodes"
	// toSecondNode is the link from this machine to the second cluster. The clusters reach each other.
	toSecondNode = "machine"
)

// cut cuts a link of the testbed: connections hang until it is healed.
func cut(t *testing.T, link string) {
	t.Helper()
	t.Cleanup(func() { heal(t) })
	command{name: os.Getenv("E2E_TESTBED"), args: []string{"link", "down", "--node", "b", "--to", link}}.run(t.Context(), t).ok(t)
}

// heal restores all links.
func heal(t *testing.T) {
	t.Helper()
	command{name: os.Getenv("E2E_TESTBED"), args: []string{"link", "up"}}.run(context.Background(), t).ok(t)
}

// TestClusterZonesCut cuts the links between the clusters and kcpctl, before up, during it and after it.
func TestClusterZonesCut(t *testing.T) {
	if os.Getenv("E2E_TESTBED") == "" {
		t.Skip("E2E_TESTBED is not set: only the links of the testbed can be cut")
	}
	s, z := newZones(t, newerRelease)
	c := &cuts{s, z}
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up cannot reach a cluster", c.beforeUp},
		{"the clusters lose each other during up", c.nodesDuringUp},
		{"up converges", func(t *testing.T) { s.up(t); isReady(t, s); createWorkspaces(t, s); changesNothing(t, s) }},
		{"the clusters lose each other", c.nodes},
		{"kcpctl loses a cluster", c.machine},
		{"kcpctl loses a cluster during up", c.machineDuringUp},
		{"kcpctl loses a cluster during a rotation", c.machineDuringRotation},
		{"places hold what their components need after a rotation", func(t *testing.T) { z.holdNoForeignKeys(t, s) }},
		{"nothing is lost", func(t *testing.T) { readWorkspaces(t, s); changesNothing(t, s) }},
		{"down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) }},
	} {
		step(t, part.name, part.do)
	}
}

// cuts is a setup over two clusters, one of which cannot always be reached.
type cuts struct {
	*setup
	zones *zones
}

// unreachable are facts of an error about the second cluster.
func (c *cuts) unreachable(t *testing.T) []string {
	return []string{"us", "https://" + c.zones.places["us"].address(t) + ":6443", "hint: "}
}

func (c *cuts) beforeUp(t *testing.T) {
	facts := c.unreachable(t)
	cut(t, toSecondNode)
	c.kcpctl(t, "up").refused(t, 1, facts...)
	require.Empty(t, c.zones.places[home].left(t.Context(), t), "nothing was to be written")
	heal(t)
}

func (c *cuts) nodesDuringUp(t *testing.T) {
	c.command("up", "--output", "json", "--timeout", "75s").during(t, 1, running("shard/beta"), func(*exec.Cmd) { cut(t, betweenNodes) }).
		refused(t, 3, "shard/beta", "hint: ")
	heal(t)
}

// running matches the event that a component is changed.
func running(component string) *regexp.Regexp {
	return regexp.MustCompile(`"name":"` + component + `","status":"running"`)
}

// nodes cuts the link between the clusters while kcp runs. Each cluster still serves the workspaces on its own shards.
func (c *cuts) nodes(t *testing.T) {
	cut(t, betweenNodes)
	read := []string{"--request-timeout=20s", "get", "configmap", "data", "--output", "jsonpath={.data.shard}"}
	eventually(t.Context(), t, func() error { return c.reads(t, "beta", asEdge("root:on-beta"), read...) })
	for _, shard := range []string{"root", "alpha"} {
		eventually(t.Context(), t, func() error { return c.reads(t, shard, asMain("root:on-"+shard), read...) })
	}
	require.Error(t, c.reads(t, "beta", asMain("root:on-beta"), read...))
	r := c.kcpctl(t, "check")
	require.Equal(t, 1, r.code, r.stdout)
	require.Contains(t, r.stdout, c.zones.places["us"].address(t))
	heal(t)
	readWorkspaces(t, c.setup)
	readThroughEdge(t, c.setup)
	c.check(t, "--wait", "1m").passes(t)
}

// machine cuts kcpctl off from the second cluster while kcp runs. Clients do not notice.
func (c *cuts) machine(t *testing.T) {
	facts, before := c.unreachable(t), c.zones.places[home].written(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	c.kcpctl(t, "kubeconfig", append(asMain("root"), "--output", kubeconfig)...).ok(t)
	server := strings.TrimSuffix(c.status(t).URL, "/") + "/clusters/root:on-"
	cut(t, toSecondNode)
	for _, args := range [][]string{{"up"}, {"down", "--yes"}} {
		c.kcpctl(t, args[0], args[1:]...).refused(t, 1, facts...)
	}
	require.Equal(t, before, c.zones.places[home].written(t), "nothing was to be written")
	for _, shard := range shardNames() {
		read := command{name: "kubectl", args: []string{"--kubeconfig", kubeconfig, "--server", server + shard,
			"get", "configmap", "data", "--output", "jsonpath={.data.shard}"}}
		require.Equal(t, shard, read.run(t.Context(), t).ok(t).stdout)
	}
	heal(t)
}

func (c *cuts) machineDuringUp(t *testing.T) {
	facts := c.unreachable(t)
	c.edit(t, "\nspec:\n", "\nspec:\n  defaults: {logLevel: 3}\n")
	up := c.command("up", "--output", "json", "--timeout", "3m")
	up.during(t, 1, running("shard/alpha"), func(*exec.Cmd) { cut(t, toSecondNode) }).refused(t, 1, append(facts, "shard/beta")...)
	heal(t)
	c.up(t)
	readWorkspaces(t, c.setup)
}

// machineDuringRotation cuts kcpctl off while components change to a new authority. The same command continues.
func (c *cuts) machineDuringRotation(t *testing.T) {
	facts := c.unreachable(t)
	u := &certificates{setup: c.setup}
	rotate := c.command("certs")
	rotate.args = append([]string{"certs", "rotate-ca"}, append(rotate.args[1:], "client", "--output", "json", "--skip-canary")...)
	rotate.during(t, 1, running("shard/alpha"), func(*exec.Cmd) { cut(t, toSecondNode) }).refused(t, 1, append(facts, "shard/beta")...)
	heal(t)
	readThroughEdge(t, c.setup)
	u.certs(t, "rotate-ca", "client", "--skip-canary").ok(t).quiet(t)
	u.inPhase(t, "switch", "client")
	u.certs(t, "rotate-ca", "client", "--finish", "--yes", "--skip-canary").ok(t).quiet(t)
	readThroughEdge(t, c.setup)
}

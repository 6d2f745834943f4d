package day2

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestClusterZonesCut cuts the links between the clusters and kcpctl, before up, during it and after it.
func TestClusterZonesCut(t *testing.T) {
	if os.Getenv("E2E_TESTBED") == "" {
		t.Skip("E2E_TESTBED is not set: only the links of the testbed can be cut")
	}
	s, z := framework.NewZones(t, framework.NewerRelease)
	c := &cuts{s, z}
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"up cannot reach a cluster", c.beforeUp},
		{"the clusters lose each other during up", c.nodesDuringUp},
		{"up converges", func(t *testing.T) {
			s.Up(t)
			framework.IsReady(t, s)
			framework.CreateWorkspaces(t, s)
			framework.ChangesNothing(t, s)
		}},
		{"the clusters lose each other", c.nodes},
		{"kcpctl loses a cluster", c.machine},
		{"kcpctl loses a cluster during up", c.machineDuringUp},
		{"kcpctl loses a cluster during a rotation", c.machineDuringRotation},
		{"places hold what their components need after a rotation", func(t *testing.T) { z.HoldNoForeignKeys(t, s) }},
		{"nothing is lost", func(t *testing.T) { framework.ReadWorkspaces(t, s); framework.ChangesNothing(t, s) }},
		{"down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) }},
	} {
		framework.Step(t, part.name, part.do)
	}
}

// cuts is a setup over two clusters, one of which cannot always be reached.
type cuts struct {
	*framework.Setup
	zones *framework.Zones
}

// unreachable are facts of an error about the second cluster.
func (c *cuts) unreachable(t *testing.T) []string {
	return []string{"us", "https://" + c.zones.Places["us"].Address(t) + ":6443", "hint: "}
}

func (c *cuts) beforeUp(t *testing.T) {
	facts := c.unreachable(t)
	framework.Cut(t, framework.ToSecondNode)
	c.Kcpctl(t, "up").Refused(t, 1, facts...)
	require.Empty(t, c.zones.Places[framework.Home].Left(t.Context(), t), "nothing was to be written")
	framework.Heal(t)
}

func (c *cuts) nodesDuringUp(t *testing.T) {
	c.Command("up", "--output", "json", "--timeout", "75s").During(t, 1, framework.Running("shard/beta"), func(*exec.Cmd) { framework.Cut(t, framework.BetweenNodes) }).
		Refused(t, 3, "shard/beta", "hint: ")
	framework.Heal(t)
}

// nodes cuts the link between the clusters while kcp runs. Each cluster still serves the workspaces on its own shards.
func (c *cuts) nodes(t *testing.T) {
	framework.Cut(t, framework.BetweenNodes)
	read := []string{"--request-timeout=20s", "get", "configmap", "data", "--output", "jsonpath={.data.shard}"}
	framework.Eventually(t.Context(), t, func() error { return c.Reads(t, "beta", framework.AsEdge("root:on-beta"), read...) })
	for _, shard := range []string{"root", "alpha"} {
		framework.Eventually(t.Context(), t, func() error { return c.Reads(t, shard, framework.AsMain("root:on-"+shard), read...) })
	}
	require.Error(t, c.Reads(t, "beta", framework.AsMain("root:on-beta"), read...))
	r := c.Kcpctl(t, "check")
	require.Equal(t, 1, r.Code, r.Stdout)
	require.Contains(t, r.Stdout, c.zones.Places["us"].Address(t))
	framework.Heal(t)
	framework.ReadWorkspaces(t, c.Setup)
	framework.ReadThroughEdge(t, c.Setup)
	c.Check(t, "--wait", "1m").Passes(t)
}

// machine cuts kcpctl off from the second cluster while kcp runs. Clients do not notice.
func (c *cuts) machine(t *testing.T) {
	facts, before := c.unreachable(t), c.zones.Places[framework.Home].Written(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	c.Kcpctl(t, "kubeconfig", append(framework.AsMain("root"), "--output", kubeconfig)...).OK(t)
	server := strings.TrimSuffix(c.Status(t).URL, "/") + "/clusters/root:on-"
	framework.Cut(t, framework.ToSecondNode)
	for _, args := range [][]string{{"up"}, {"down", "--yes"}} {
		c.Kcpctl(t, args[0], args[1:]...).Refused(t, 1, facts...)
	}
	require.Equal(t, before, c.zones.Places[framework.Home].Written(t), "nothing was to be written")
	for _, shard := range framework.ShardNames() {
		read := framework.Command{Name: "kubectl", Args: []string{"--kubeconfig", kubeconfig, "--server", server + shard,
			"get", "configmap", "data", "--output", "jsonpath={.data.shard}"}}
		require.Equal(t, shard, read.Run(t.Context(), t).OK(t).Stdout)
	}
	framework.Heal(t)
}

func (c *cuts) machineDuringUp(t *testing.T) {
	facts := c.unreachable(t)
	c.Edit(t, "\nspec:\n", "\nspec:\n  defaults: {logLevel: 3}\n")
	up := c.Command("up", "--output", "json", "--timeout", "3m")
	up.During(t, 1, framework.Running("shard/alpha"), func(*exec.Cmd) { framework.Cut(t, framework.ToSecondNode) }).Refused(t, 1, append(facts, "shard/beta")...)
	framework.Heal(t)
	c.Up(t)
	framework.ReadWorkspaces(t, c.Setup)
}

// machineDuringRotation cuts kcpctl off while components change to a new authority. The same command continues.
func (c *cuts) machineDuringRotation(t *testing.T) {
	facts := c.unreachable(t)
	u := &certificates{Setup: c.Setup}
	rotate := c.Command("certs")
	rotate.Args = append([]string{"certs", "rotate-ca"}, append(rotate.Args[1:], "client", "--output", "json", "--skip-canary")...)
	rotate.During(t, 1, framework.Running("shard/alpha"), func(*exec.Cmd) { framework.Cut(t, framework.ToSecondNode) }).Refused(t, 1, append(facts, "shard/beta")...)
	framework.Heal(t)
	framework.ReadThroughEdge(t, c.Setup)
	u.Certs(t, "rotate-ca", "client", "--skip-canary").OK(t).Quiet(t)
	u.inPhase(t, "switch", "client")
	u.Certs(t, "rotate-ca", "client", "--finish", "--yes", "--skip-canary").OK(t).Quiet(t)
	framework.ReadThroughEdge(t, c.Setup)
}

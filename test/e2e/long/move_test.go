package long

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// movedWorkspaces is how many workspaces the test of moves has, besides the children of the first.
var movedWorkspaces = flag.Int("moved", 8, "number of workspaces that move")

// TestLocalMove moves workspaces while clients write to all of them, and makes shards even. No acknowledged write may be
// lost.
func TestLocalMove(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	s.Text = fmt.Sprintf(framework.Drained, s.Name, "embedded: {ephemeral: true}", 1)
	s.Write(t, s.Text)
	s.Up(t)
	var names []string
	for i := range *movedWorkspaces {
		names = append(names, fmt.Sprintf("w%d", i))
	}
	framework.Step(t, "workspaces on alpha", func(t *testing.T) {
		s.Kcpctl(t, "cordon", "beta").OK(t)
		s.Kcpctl(t, "cordon", "root").OK(t)
		create := s.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		for _, name := range names {
			create.Stdin += fmt.Sprintf(framework.DrainedWorkspace, name, "tier: a")
		}
		create.Run(t.Context(), t).OK(t)
		ready := []string{"--for=jsonpath={.status.phase}=Ready", "--timeout=5m"}
		s.Kubectl(t, slices.Concat([]string{"wait", "workspaces"}, names, ready)...).OK(t)
		below := []string{"admin", "--workspace", "root:w0", "--", "kubectl"}
		child := s.Command("kubeconfig", append(below, "create", "--filename", "-")...)
		child.Stdin = fmt.Sprintf(framework.DrainedWorkspace, "child", "tier: a")
		child.Run(t.Context(), t).OK(t)
		wait := slices.Concat(below, []string{"wait", "workspaces", "child"}, ready)
		s.Command("kubeconfig", wait...).Run(t.Context(), t).OK(t)
	})
	var all []string
	for _, name := range names[:len(names)/4] {
		all = append(all, "root:"+name)
	}
	framework.Step(t, "a cordoned shard and an unknown workspace are refused", func(t *testing.T) {
		s.Kcpctl(t, "move", "root:w0", "root:none", "--to", "beta", "--yes").
			Refused(t, 2, `shard "beta" is cordoned`, `workspace "root:none" does not exist`)
		s.Kcpctl(t, "uncordon", "beta").OK(t)
	})
	move := func(t *testing.T, flag string) framework.Result {
		return s.Kcpctl(t, "move", slices.Concat(all, []string{"--to", "beta", "--recursive", flag})...).OK(t)
	}
	w := framework.StartWriters(t, s, names)
	w.WriteMore(t, 200)
	framework.Step(t, "some move to beta", func(t *testing.T) {
		began := time.Now()
		move(t, "--yes")
		t.Logf("%d workspaces moved in %s", len(all)+1, time.Since(began).Round(time.Second))
		require.Contains(t, move(t, "--dry-run").Stderr, `the workspaces are on shard "beta"`)
	})
	framework.Step(t, "none moves back to a process that it has left", func(t *testing.T) {
		s.Kcpctl(t, "move", "root:w0", "--to", "alpha", "--yes").Refused(t, 1, "it was on shard alpha since this shard started",
			"kcpctl restart shard/alpha")
	})
	framework.Step(t, "the shards become even", func(t *testing.T) {
		planned := s.Kcpctl(t, "rebalance", "--dry-run").OK(t).Stdout
		require.Contains(t, planned, "WORKSPACE")
		began := time.Now()
		s.Kcpctl(t, "rebalance", "--yes").OK(t)
		t.Logf("%d workspaces moved in %s", strings.Count(planned, "\n")-1, time.Since(began).Round(time.Second))
		require.Contains(t, s.Kcpctl(t, "rebalance", "--dry-run").OK(t).Stderr, "nothing moves: the shards are balanced")
	})
	w.WriteMore(t, 50)
	w.Stop()
	for _, name := range names {
		w.Check(t, name)
	}
	t.Logf("%d writes acknowledged, %d refused", w.Acknowledged, w.Refused)
	require.NotContains(t, s.Kcpctl(t, "status").OK(t).Stdout, "last run")
	s.Kubectl(t, "delete", "workspaces", "w0", "--timeout=2m").OK(t)
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) })
}

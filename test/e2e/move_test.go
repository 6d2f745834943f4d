//go:build e2e && long

package e2e

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// movedWorkspaces is how many workspaces the test of moves has, besides the children of the first.
var movedWorkspaces = flag.Int("moved", 8, "number of workspaces that move")

// TestLocalMove moves workspaces while clients write to all of them, and makes shards even. No acknowledged write may be
// lost.
func TestLocalMove(t *testing.T) {
	s := newLocal(t, "minimal")
	s.text = fmt.Sprintf(drained, s.name, "embedded: {ephemeral: true}", 1)
	s.write(t, s.text)
	s.up(t)
	var names []string
	for i := range *movedWorkspaces {
		names = append(names, fmt.Sprintf("w%d", i))
	}
	step(t, "workspaces on alpha", func(t *testing.T) {
		s.kcpctl(t, "cordon", "beta").ok(t)
		s.kcpctl(t, "cordon", "root").ok(t)
		create := s.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		for _, name := range names {
			create.stdin += fmt.Sprintf(drainedWorkspace, name, "tier: a")
		}
		create.run(t.Context(), t).ok(t)
		ready := []string{"--for=jsonpath={.status.phase}=Ready", "--timeout=5m"}
		s.kubectl(t, slices.Concat([]string{"wait", "workspaces"}, names, ready)...).ok(t)
		below := []string{"admin", "--workspace", "root:w0", "--", "kubectl"}
		child := s.command("kubeconfig", append(below, "create", "--filename", "-")...)
		child.stdin = fmt.Sprintf(drainedWorkspace, "child", "tier: a")
		child.run(t.Context(), t).ok(t)
		wait := slices.Concat(below, []string{"wait", "workspaces", "child"}, ready)
		s.command("kubeconfig", wait...).run(t.Context(), t).ok(t)
	})
	var all []string
	for _, name := range names[:len(names)/4] {
		all = append(all, "root:"+name)
	}
	step(t, "a cordoned shard and an unknown workspace are refused", func(t *testing.T) {
		s.kcpctl(t, "move", "root:w0", "root:none", "--to", "beta", "--yes").
			refused(t, 2, `shard "beta" is cordoned`, `workspace "root:none" does not exist`)
		s.kcpctl(t, "uncordon", "beta").ok(t)
	})
	move := func(t *testing.T, flag string) result {
		return s.kcpctl(t, "move", slices.Concat(all, []string{"--to", "beta", "--recursive", flag})...).ok(t)
	}
	w := startWriters(t, s, names)
	w.writeMore(t, 200)
	step(t, "some move to beta", func(t *testing.T) {
		began := time.Now()
		move(t, "--yes")
		t.Logf("%d workspaces moved in %s", len(all)+1, time.Since(began).Round(time.Second))
		require.Contains(t, move(t, "--dry-run").stderr, `the workspaces are on shard "beta"`)
	})
	step(t, "none moves back to a process that it has left", func(t *testing.T) {
		s.kcpctl(t, "move", "root:w0", "--to", "alpha", "--yes").refused(t, 1, "it was on shard alpha since this shard started",
			"kcpctl restart shard/alpha")
	})
	step(t, "the shards become even", func(t *testing.T) {
		planned := s.kcpctl(t, "rebalance", "--dry-run").ok(t).stdout
		require.Contains(t, planned, "WORKSPACE")
		began := time.Now()
		s.kcpctl(t, "rebalance", "--yes").ok(t)
		t.Logf("%d workspaces moved in %s", strings.Count(planned, "\n")-1, time.Since(began).Round(time.Second))
		require.Contains(t, s.kcpctl(t, "rebalance", "--dry-run").ok(t).stderr, "nothing moves: the shards are balanced")
	})
	w.writeMore(t, 50)
	w.stop()
	for _, name := range names {
		w.check(t, name)
	}
	t.Logf("%d writes acknowledged, %d refused", w.acknowledged, w.refused)
	require.NotContains(t, s.kcpctl(t, "status").ok(t).stdout, "last run")
	s.kubectl(t, "delete", "workspaces", "w0", "--timeout=2m").ok(t)
	step(t, "down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) })
}

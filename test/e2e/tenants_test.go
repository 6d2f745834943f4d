//go:build e2e && long

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTenants brings up the workspaces of a setup file, changes them by hand and in the file, and removes them.
func TestTenants(t *testing.T) {
	s := newLocal(t, "tenants", "--plain")
	s.up(t)
	inWorkspace := func(path string, args ...string) result {
		return s.kubectl(t, append([]string{"--server", s.status(t).URL + "/clusters/" + path}, args...)...)
	}
	for _, team := range [][2]string{{"team-a", "beta"}, {"team-b", "alpha"}} {
		var w workspace
		eventually(t.Context(), t, func() error {
			return inWorkspace("root:teams", "get", "workspace", team[0], "--output", "json").decode(&w)
		})
		require.Equal(t, team[1], w.Metadata.Annotations["core.kcp.io/shard"], team[0])
	}
	alice := []string{"--user", "alice", "--workspace", "root:teams:team-a"}
	s.creates(t, alice, "configmap", "mine")
	require.NotZero(t, s.kubectlAs(t, []string{"--user", "alice", "--workspace", "root:teams:team-b"}, "get", "configmaps").code)
	eventually(t.Context(), t, func() error {
		_, err := inWorkspace("root:teams:team-a", "get", "cachedresources").output()
		return err
	})

	before := s.written(t)
	require.Contains(t, s.up(t).stderr, "is up to date: 0 changes")
	require.Equal(t, before, s.written(t), "a run without changes writes nothing")
	require.Empty(t, s.kcpctl(t, "diff").ok(t).stdout)
	require.Contains(t, s.kcpctl(t, "status", "--all").ok(t).stdout, "workspace/root:teams:team-a")

	// A change by hand: one that server-side apply reverts, and one that another manager owns.
	inWorkspace("root:teams:team-a", "delete", "clusterrolebinding", s.name+":role:developers").ok(t)
	inWorkspace("root:teams:team-b", "patch", "clusterrolebinding", s.name+":access", "--type", "merge", "--patch", `{"subjects":[]}`).ok(t)
	r := s.kcpctl(t, "diff")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stdout, "+ ClusterRoleBinding/"+s.name+":role:developers in root:teams:team-a")
	require.Contains(t, r.stdout, "~ ClusterRoleBinding/"+s.name+":access in root:teams:team-b")
	s.up(t)
	require.Empty(t, s.kcpctl(t, "diff").ok(t).stdout)

	// A workspace of a user is refused before anything is written.
	foreign := s.command("kubeconfig", "admin", "--", "kubectl", "--server", s.status(t).URL+"/clusters/root:teams", "create", "-f", "-")
	foreign.stdin = "apiVersion: tenancy.kcp.io/v1alpha1\nkind: Workspace\nmetadata: {name: team-c}\nspec: {}\n"
	foreign.run(t.Context(), t).ok(t)
	s.edit(t, "    - name: team-b\n", "    - name: team-c\n    - name: team-b\n")
	r = s.kcpctl(t, "up")
	require.Equal(t, 4, r.code, r.stderr)
	require.Contains(t, r.stderr, "Workspace/team-c in root:teams")

	// kcp does not move a workspace.
	s.edit(t, "selector: {tier: premium}", "selector: {tier: standard}")
	r = s.kcpctl(t, "up")
	require.Equal(t, 1, r.code, r.stderr)
	require.Contains(t, r.stderr, "workspace root:teams:team-a is on shard beta")

	// Removed entries: roles are pruned, data stays until it is asked for.
	s.write(t, strings.Replace(s.text[:strings.Index(s.text, "      bindings:")], "      - clusterRole: cluster-admin\n        groups: [team-a-admins]\n", "", 1))
	r = s.up(t)
	require.Contains(t, r.stderr, "--prune-data workspace/root:teams:team-b")
	require.Contains(t, r.stderr, "--prune-data workspace/root:teams:team-a")
	require.NotZero(t, inWorkspace("root:teams:team-a", "get", "clusterrolebinding", s.name+":role:cluster-admin").code)
	inWorkspace("root:teams:team-a", "get", "apibinding", "cache.kcp.io").ok(t)
	inWorkspace("root:teams:team-b", "get", "clusterrolebinding", s.name+":access").ok(t)
	require.Empty(t, s.kcpctl(t, "diff").ok(t).stdout)
	s.up(t, "--prune-data", "workspace/root:teams:team-b,workspace/root:teams:team-a")
	require.NotZero(t, inWorkspace("root:teams", "get", "workspace", "team-b").code)
	require.NotZero(t, inWorkspace("root:teams:team-a", "get", "apibinding", "cache.kcp.io").code)
	s.kubectlAs(t, alice, "get", "configmap", "mine").ok(t)

	// down keeps the data of kcp, and the next up continues with it.
	s.kcpctl(t, "down", "--yes").ok(t)
	s.up(t)
	eventually(t.Context(), t, func() error { _, err := s.kubectlAs(t, alice, "get", "configmap", "mine").output(); return err })
	require.Empty(t, s.kcpctl(t, "diff").ok(t).stdout)
}

package long

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestTenants brings up the workspaces of a setup file, changes them by hand and in the file, and removes them.
func TestTenants(t *testing.T) {
	s := framework.NewLocal(t, "tenants", "--plain")
	s.Up(t)
	inWorkspace := func(path string, args ...string) framework.Result {
		return s.Kubectl(t, append([]string{"--server", s.Status(t).URL + "/clusters/" + path}, args...)...)
	}
	for _, team := range [][2]string{{"team-a", "beta"}, {"team-b", "alpha"}} {
		var w framework.Workspace
		framework.Eventually(t.Context(), t, func() error {
			return inWorkspace("root:teams", "get", "workspace", team[0], "--output", "json").Decode(&w)
		})
		require.Equal(t, team[1], w.Metadata.Annotations["core.kcp.io/shard"], team[0])
	}
	alice := []string{"--user", "alice", "--workspace", "root:teams:team-a"}
	s.Creates(t, alice, "configmap", "mine")
	require.NotZero(t, s.KubectlAs(t, []string{"--user", "alice", "--workspace", "root:teams:team-b"}, "get", "configmaps").Code)
	framework.Eventually(t.Context(), t, func() error {
		_, err := inWorkspace("root:teams:team-a", "get", "cachedresources").Output()
		return err
	})

	before := s.Written(t)
	require.Contains(t, s.Up(t).Stderr, "is up to date: 0 changes")
	require.Equal(t, before, s.Written(t), "a run without changes writes nothing")
	require.Empty(t, s.Kcpctl(t, "diff").OK(t).Stdout)
	require.Contains(t, s.Kcpctl(t, "status", "--all").OK(t).Stdout, "workspace/root:teams:team-a")

	// A change by hand: one that server-side apply reverts, and one that another manager owns.
	inWorkspace("root:teams:team-a", "delete", "clusterrolebinding", s.Name+":role:developers").OK(t)
	inWorkspace("root:teams:team-b", "patch", "clusterrolebinding", s.Name+":access", "--type", "merge", "--patch", `{"subjects":[]}`).OK(t)
	r := s.Kcpctl(t, "diff")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stdout, "+ ClusterRoleBinding/"+s.Name+":role:developers in root:teams:team-a")
	require.Contains(t, r.Stdout, "~ ClusterRoleBinding/"+s.Name+":access in root:teams:team-b")
	s.Up(t)
	require.Empty(t, s.Kcpctl(t, "diff").OK(t).Stdout)

	// A workspace of a user is refused before anything is written.
	foreign := s.Command("kubeconfig", "admin", "--", "kubectl", "--server", s.Status(t).URL+"/clusters/root:teams", "create", "-f", "-")
	foreign.Stdin = "apiVersion: tenancy.kcp.io/v1alpha1\nkind: Workspace\nmetadata: {name: team-c}\nspec: {}\n"
	foreign.Run(t.Context(), t).OK(t)
	s.Edit(t, "    - name: team-b\n", "    - name: team-c\n    - name: team-b\n")
	r = s.Kcpctl(t, "up")
	require.Equal(t, 4, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "Workspace/team-c in root:teams")

	// kcp does not move a workspace.
	s.Edit(t, "selector: {tier: premium}", "selector: {tier: standard}")
	r = s.Kcpctl(t, "up")
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "workspace root:teams:team-a is on shard beta")

	// Removed entries: roles are pruned, data stays until it is asked for.
	s.Write(t, strings.Replace(s.Text[:strings.Index(s.Text, "      bindings:")], "      - clusterRole: cluster-admin\n        groups: [team-a-admins]\n", "", 1))
	r = s.Up(t)
	require.Contains(t, r.Stderr, "--prune-data workspace/root:teams:team-b")
	require.Contains(t, r.Stderr, "--prune-data workspace/root:teams:team-a")
	require.NotZero(t, inWorkspace("root:teams:team-a", "get", "clusterrolebinding", s.Name+":role:cluster-admin").Code)
	inWorkspace("root:teams:team-a", "get", "apibinding", "cache.kcp.io").OK(t)
	inWorkspace("root:teams:team-b", "get", "clusterrolebinding", s.Name+":access").OK(t)
	require.Empty(t, s.Kcpctl(t, "diff").OK(t).Stdout)
	s.Up(t, "--prune-data", "workspace/root:teams:team-b,workspace/root:teams:team-a")
	require.NotZero(t, inWorkspace("root:teams", "get", "workspace", "team-b").Code)
	require.NotZero(t, inWorkspace("root:teams:team-a", "get", "apibinding", "cache.kcp.io").Code)
	s.KubectlAs(t, alice, "get", "configmap", "mine").OK(t)

	// down keeps the data of kcp, and the next up continues with it.
	s.Kcpctl(t, "down", "--yes").OK(t)
	s.Up(t)
	framework.Eventually(t.Context(), t, func() error { _, err := s.KubectlAs(t, alice, "get", "configmap", "mine").Output(); return err })
	require.Empty(t, s.Kcpctl(t, "diff").OK(t).Stdout)
}

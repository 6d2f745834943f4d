package day2

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/apiserver"
	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalAgentCluster runs the example of an agent on this machine, for a cluster of the kubeconfig: users create
// Widgets in a workspace, and get their status and their Secret back. The cluster has no nodes and no controllers,
// which an agent does not need.
func TestLocalAgentCluster(t *testing.T) {
	server, err := apiserver.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	admin, err := server.Kubeconfig(apiserver.Admin)
	require.NoError(t, err)
	on := func(args ...string) string {
		t.Helper()
		return framework.Command{Name: "kubectl", Args: append([]string{"--kubeconfig", admin}, args...)}.Run(t.Context(), t).OK(t).Stdout
	}

	s := framework.NewLocal(t, "agent")
	s.Env = append(s.Env, "PATH="+framework.Given(t, "E2E_AGENT_BIN_DIR")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	workspace := regexp.MustCompile(` *workspace: root:services.*`).FindString(s.Text)
	s.Text = strings.Replace(s.Text, workspace, "    kubeconfig: "+admin, 1)
	s.Text = strings.Replace(s.Text, "\n  clusters:\n", `
  external: {hostname: kcp.example.test} # for an agent on a cluster, although with --local all addresses are loopback ones
  rootShard: {virtualWorkspaceURL: "https://root.example.test:6443"}
  clusters:
`, 1)
	s.Write(t, s.Text)
	team := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:team-a"}
	copies := func() ([]string, error) {
		get := framework.Command{Name: "kubectl", Args: []string{"--kubeconfig", admin, "get", "widgets", "--all-namespaces",
			"--output", `jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.spec.size}{"\n"}{end}`}}
		out, err := get.Run(t.Context(), t).Output()
		return strings.Fields(out), err
	}
	// copied waits for the only copy, which has a size, and returns its namespace and its name.
	copied := func(t *testing.T, size string) (namespace, name string) {
		t.Helper()
		framework.Eventually(t.Context(), t, func() error {
			got, err := copies()
			if err == nil && (len(got) != 3 || got[2] != size) {
				err = fmt.Errorf("copies: %v", got)
			}
			if err == nil {
				namespace, name = got[0], got[1]
			}
			return err
		})
		return namespace, name
	}

	interrupt(t, s, syscall.SIGKILL, 1, regexp.MustCompile(`"agent/widgets","status":"running"`))
	s.Up(t)
	require.Empty(t, s.Kcpctl(t, "diff").OK(t).Stdout)
	s.BecomesReady(t)
	require.Contains(t, s.Kcpctl(t, "status").Stdout, "agent/widgets")
	s.Kcpctl(t, "check", "--wait", "1m").OK(t)
	framework.Step(t, "the agent has a credential of its own", func(t *testing.T) {
		kubeconfig := filepath.Join(s.Runtime.(*framework.Local).Dir, "components", s.Name+"-agent-widgets", "config", "kubeconfig", "service.kubeconfig")
		info, err := os.Stat(kubeconfig)
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode())
		own := framework.Command{Name: "kubectl", Args: []string{"--kubeconfig", kubeconfig, "auth", "whoami", "--output", "jsonpath={.status.userInfo.username}"}}
		require.Equal(t, "system:serviceaccount:kcp-agents:"+s.Name+"-agent-widgets", own.Run(t.Context(), t).OK(t).Stdout)
	})
	framework.Step(t, "status and Secret come back", func(t *testing.T) {
		c := s.Command("kubeconfig", append(append([]string{}, team...), "--", "kubectl", "create", "--filename", "-")...)
		c.Stdin = fmt.Sprintf(framework.Widget, "first")
		c.Run(t.Context(), t).OK(t)
		ns, name := copied(t, "3")
		on("create", "secret", "generic", name+"-credentials", "--namespace", ns, "--from-literal=password=x")
		on("patch", "widget", name, "--namespace", ns, "--type=merge", "--subresource=status", "--patch", `{"status":{"phase":"Ready"}}`)
		framework.Eventually(t.Context(), t, func() error {
			return s.Reads(t, "Ready", team, "get", "widget", "first", "--output", "jsonpath={.status.phase}")
		})
		framework.Eventually(t.Context(), t, func() error {
			return s.Reads(t, "eA==", team, "get", "secret", "first-credentials", "--output", "jsonpath={.data.password}")
		})
	})
	// remains are the objects of the setup on the cluster, without those that every namespace has.
	remains := func() string {
		return on("get", "serviceaccounts,secrets,configmaps,leases,roles,rolebindings", "--namespace", "kcp-agents", "--output", "name") +
			on("get", "publishedresources,clusterroles,clusterrolebindings", "--selector", "kcpctl.dev/setup="+s.Name, "--output", "name")
	}
	require.Contains(t, remains(), "secret/obj-state-")
	s.Kcpctl(t, "down", "--yes").OK(t)
	require.Empty(t, remains())

	s.Up(t)
	s.KubectlAs(t, team, "patch", "widget", "first", "--type=merge", "--patch", `{"spec":{"size":4}}`).OK(t)
	copied(t, "4")
	framework.Step(t, "the cluster is gone for a while", func(t *testing.T) {
		require.NoError(t, server.Kill())
		s.Kcpctl(t, "up", "--only", "root-shard").OK(t)
		s.Kcpctl(t, "down", "--yes", "--purge").Refused(t, 1, "agent/widgets", "does not answer", "--orphan agent/widgets")
		require.NoError(t, server.Restart(t.Context()))
		s.Up(t)
	})
	s.KubectlAs(t, team, "delete", "widget", "first", "--timeout=3m").OK(t)
	framework.Eventually(t.Context(), t, func() error {
		got, err := copies()
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("copies: %v", got)
		}
		return err
	})
	s.Kcpctl(t, "down", "--yes", "--purge").OK(t)
	require.Empty(t, s.Left(t.Context(), t))
	require.Empty(t, remains())
	require.NotEmpty(t, on("get", "namespace", "kcp-agents", "--output", "jsonpath={.metadata.deletionTimestamp}"))
}

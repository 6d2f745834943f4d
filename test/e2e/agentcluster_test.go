//go:build e2e && long && day2

package e2e

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
		return command{name: "kubectl", args: append([]string{"--kubeconfig", admin}, args...)}.run(t.Context(), t).ok(t).stdout
	}

	s := newLocal(t, "agent")
	s.env = append(s.env, "PATH="+given(t, "E2E_AGENT_BIN_DIR")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	workspace := regexp.MustCompile(` *workspace: root:services.*`).FindString(s.text)
	s.text = strings.Replace(s.text, workspace, "    kubeconfig: "+admin+"\n    namespace: kcp-agents", 1)
	s.write(t, s.text)
	team := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:team-a"}
	copies := func() ([]string, error) {
		get := command{name: "kubectl", args: []string{"--kubeconfig", admin, "get", "widgets", "--all-namespaces",
			"--output", `jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.spec.size}{"\n"}{end}`}}
		out, err := get.run(t.Context(), t).output()
		return strings.Fields(out), err
	}
	// copied waits for the only copy, which has a size, and returns its namespace and its name.
	copied := func(t *testing.T, size string) (namespace, name string) {
		t.Helper()
		eventually(t.Context(), t, func() error {
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

	s.interrupt(t, syscall.SIGKILL, 1, regexp.MustCompile(`"agent/widgets","status":"running"`))
	s.up(t)
	require.Empty(t, s.kcpctl(t, "diff").ok(t).stdout)
	s.becomesReady(t)
	require.Contains(t, s.kcpctl(t, "status").stdout, "agent/widgets")
	s.kcpctl(t, "check", "--wait", "1m").ok(t)
	step(t, "the agent has a credential of its own", func(t *testing.T) {
		kubeconfig := filepath.Join(s.runtime.(*local).dir, "components", s.name+"-agent-widgets", "config", "kubeconfig", "service.kubeconfig")
		info, err := os.Stat(kubeconfig)
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode())
		own := command{name: "kubectl", args: []string{"--kubeconfig", kubeconfig, "auth", "whoami", "--output", "jsonpath={.status.userInfo.username}"}}
		require.Equal(t, "system:serviceaccount:kcp-agents:"+s.name+"-agent-widgets", own.run(t.Context(), t).ok(t).stdout)
	})
	step(t, "status and Secret come back", func(t *testing.T) {
		c := s.command("kubeconfig", append(append([]string{}, team...), "--", "kubectl", "create", "--filename", "-")...)
		c.stdin = fmt.Sprintf(widget, "first")
		c.run(t.Context(), t).ok(t)
		ns, name := copied(t, "3")
		on("create", "secret", "generic", name+"-credentials", "--namespace", ns, "--from-literal=password=x")
		on("patch", "widget", name, "--namespace", ns, "--type=merge", "--subresource=status", "--patch", `{"status":{"phase":"Ready"}}`)
		eventually(t.Context(), t, func() error {
			return s.reads(t, "Ready", team, "get", "widget", "first", "--output", "jsonpath={.status.phase}")
		})
		eventually(t.Context(), t, func() error {
			return s.reads(t, "eA==", team, "get", "secret", "first-credentials", "--output", "jsonpath={.data.password}")
		})
	})
	// remains are the objects of the setup on the cluster, without those that every namespace has.
	remains := func() string {
		return on("get", "serviceaccounts,secrets,configmaps,leases,roles,rolebindings", "--namespace", "kcp-agents", "--output", "name") +
			on("get", "publishedresources,clusterroles,clusterrolebindings", "--selector", "kcpctl.dev/setup="+s.name, "--output", "name")
	}
	require.Contains(t, remains(), "secret/obj-state-")
	s.kcpctl(t, "down", "--yes").ok(t)
	require.Empty(t, remains())

	s.up(t)
	s.kubectlAs(t, team, "patch", "widget", "first", "--type=merge", "--patch", `{"spec":{"size":4}}`).ok(t)
	copied(t, "4")
	step(t, "the cluster is gone for a while", func(t *testing.T) {
		require.NoError(t, server.Kill())
		s.kcpctl(t, "up", "--only", "root-shard").ok(t)
		s.kcpctl(t, "down", "--yes", "--purge").refused(t, 1, "agent/widgets", "does not answer", "--orphan agent/widgets")
		require.NoError(t, server.Restart(t.Context()))
		s.up(t)
	})
	s.kubectlAs(t, team, "delete", "widget", "first", "--timeout=3m").ok(t)
	eventually(t.Context(), t, func() error {
		got, err := copies()
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("copies: %v", got)
		}
		return err
	})
	s.kcpctl(t, "down", "--yes", "--purge").ok(t)
	require.Empty(t, s.left(t.Context(), t))
	require.Empty(t, remains())
	require.NotEmpty(t, on("get", "namespace", "kcp-agents", "--output", "jsonpath={.metadata.deletionTimestamp}"))
}

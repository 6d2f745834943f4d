package long

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalAgent runs the example of an agent with another shard and with front-proxies that differ: users create Widgets
// in a workspace on alpha, and get their status and their Secret back. Then it compares the front-proxies of this kcp: the
// tokens of an issuer are valid only at those that have it, and its users reach a shard with their own name and groups.
func TestLocalAgent(t *testing.T) {
	t.Parallel()
	a := framework.NewAuthenticated(t, "agent", "--base-port", "26443") // no other setup on this machine has these ports
	s := a.Setup
	s.Env = append(s.Env, "PATH="+framework.Given(t, "E2E_AGENT_BIN_DIR")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	s.Text = strings.Replace(s.Text, "  - name: team-a", "  - {name: team-a, selector: {name: alpha}}", 1)
	s.Write(t, s.Text)
	s.Up(t)
	s.Kcpctl(t, "diff").OK(t)
	require.Contains(t, s.Kcpctl(t, "status").OK(t).Stdout, "agent/widgets")

	team := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:team-a"}
	services := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:services"}
	create := func(name string) {
		c := s.Command("kubeconfig", append(append([]string{}, team...), "--", "kubectl", "create", "--filename", "-")...)
		c.Stdin = fmt.Sprintf(framework.Widget, name)
		framework.Eventually(t.Context(), t, func() error { // the front-proxy and the shard learn of it after a moment
			if r := c.Run(t.Context(), t); r.Code != 0 && !strings.Contains(r.Stderr, "AlreadyExists") {
				return fmt.Errorf("%s: exit code %d: %s", r.Line, r.Code, r.Stderr)
			}
			return nil
		})
	}
	arrives := func(t *testing.T, name string) (namespace, copied string) {
		framework.Eventually(t.Context(), t, func() error {
			r := s.KubectlAs(t, services, "get", "widgets", "--all-namespaces", "--no-headers", "--output", "custom-columns=:.metadata.namespace,:.metadata.name")
			for line := range strings.Lines(r.Stdout) {
				if f := strings.Fields(line); len(f) == 2 && strings.HasPrefix(f[1], name+"-") {
					namespace, copied = f[0], f[1]
					return nil
				}
			}
			return fmt.Errorf("Widget %s is not there: %s", name, r.Stderr)
		})
		return namespace, copied
	}
	framework.Step(t, "status and Secret come back", func(t *testing.T) {
		create("first")
		ns, copied := arrives(t, "first")
		s.KubectlAs(t, services, "create", "secret", "generic", copied+"-credentials", "--namespace", ns, "--from-literal=password=x").OK(t)
		s.KubectlAs(t, services, "patch", "widget", copied, "--namespace", ns, "--type=merge", "--subresource=status",
			"--patch", `{"status":{"phase":"Ready"}}`).OK(t)
		framework.Eventually(t.Context(), t, func() error {
			return s.Reads(t, "Ready", team, "get", "widget", "first", "--output", "jsonpath={.status.phase}")
		})
		framework.Eventually(t.Context(), t, func() error {
			return s.Reads(t, "eA==", team, "get", "secret", "first-credentials", "--output", "jsonpath={.data.password}")
		})
	})
	framework.Step(t, "a new certificate restarts nothing", func(t *testing.T) {
		before := s.Running(t)[s.Name+"-agent-widgets"].ID
		require.NotEmpty(t, before)
		s.Certs(t, "renew", "agent/widgets").OK(t)
		require.Equal(t, before, s.Running(t)[s.Name+"-agent-widgets"].ID)
		create("second")
		arrives(t, "second")
	})
	framework.Step(t, "deleted objects leave", func(t *testing.T) {
		s.KubectlAs(t, team, "delete", "widget", "first", "second", "--timeout=3m").OK(t)
		framework.Eventually(t.Context(), t, func() error {
			return s.Reads(t, "", services, "get", "widgets", "--all-namespaces", "--output", "name")
		})
		framework.Eventually(t.Context(), t, func() error {
			return s.Reads(t, "", team, "get", "secrets", "--field-selector", "metadata.name=first-credentials", "--output", "name")
		})
	})
	authenticates(t, a)
	framework.LeavesNothing(t, s)
}

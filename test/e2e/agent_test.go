//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const widget = `apiVersion: services.example.com/v1
kind: Widget
metadata: {name: %s, namespace: default}
spec: {size: 3}
`

// TestLocalAgent runs the example of an agent with another shard: users create Widgets in a workspace on beta, and get
// their status and their Secret back.
func TestLocalAgent(t *testing.T) {
	onMachine(t)
	s := newLocal(t, "agent")
	s.env = append(s.env, "PATH="+given(t, "E2E_AGENT_BIN_DIR")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	s.text = strings.Replace(s.text, "  - name: team-a", "  - {name: team-a, selector: {name: beta}}\n  shards: [{name: beta}]", 1)
	s.write(t, s.text)
	s.up(t)
	s.kcpctl(t, "diff").ok(t)
	require.Contains(t, s.kcpctl(t, "status").ok(t).stdout, "agent/widgets")

	team := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:team-a"}
	services := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:services"}
	create := func(name string) {
		c := s.command("kubeconfig", append(append([]string{}, team...), "--", "kubectl", "create", "--filename", "-")...)
		c.stdin = fmt.Sprintf(widget, name)
		eventually(t.Context(), t, func() error { // the front-proxy and the shard learn of it after a moment
			if r := c.run(t.Context(), t); r.code != 0 && !strings.Contains(r.stderr, "AlreadyExists") {
				return fmt.Errorf("%s: exit code %d: %s", r.line, r.code, r.stderr)
			}
			return nil
		})
	}
	arrives := func(t *testing.T, name string) (namespace, copied string) {
		eventually(t.Context(), t, func() error {
			r := s.kubectlAs(t, services, "get", "widgets", "--all-namespaces", "--no-headers", "--output", "custom-columns=:.metadata.namespace,:.metadata.name")
			for line := range strings.Lines(r.stdout) {
				if f := strings.Fields(line); len(f) == 2 && strings.HasPrefix(f[1], name+"-") {
					namespace, copied = f[0], f[1]
					return nil
				}
			}
			return fmt.Errorf("Widget %s is not there: %s", name, r.stderr)
		})
		return namespace, copied
	}
	step(t, "status and Secret come back", func(t *testing.T) {
		create("first")
		ns, copied := arrives(t, "first")
		s.kubectlAs(t, services, "create", "secret", "generic", copied+"-credentials", "--namespace", ns, "--from-literal=password=x").ok(t)
		s.kubectlAs(t, services, "patch", "widget", copied, "--namespace", ns, "--type=merge", "--subresource=status",
			"--patch", `{"status":{"phase":"Ready"}}`).ok(t)
		eventually(t.Context(), t, func() error {
			return s.reads(t, "Ready", team, "get", "widget", "first", "--output", "jsonpath={.status.phase}")
		})
		eventually(t.Context(), t, func() error {
			return s.reads(t, "eA==", team, "get", "secret", "first-credentials", "--output", "jsonpath={.data.password}")
		})
	})
	step(t, "a new certificate restarts nothing", func(t *testing.T) {
		before := s.running(t)[s.name+"-agent-widgets"].id
		require.NotEmpty(t, before)
		s.certs(t, "renew", "agent/widgets").ok(t)
		require.Equal(t, before, s.running(t)[s.name+"-agent-widgets"].id)
		create("second")
		arrives(t, "second")
	})
	step(t, "deleted objects leave", func(t *testing.T) {
		s.kubectlAs(t, team, "delete", "widget", "first", "second", "--timeout=3m").ok(t)
		eventually(t.Context(), t, func() error {
			return s.reads(t, "", services, "get", "widgets", "--all-namespaces", "--output", "name")
		})
		eventually(t.Context(), t, func() error {
			return s.reads(t, "", team, "get", "secrets", "--field-selector", "metadata.name=first-credentials", "--output", "name")
		})
	})
	leavesNothing(t, s)
}

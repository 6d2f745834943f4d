package long

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

// TestLocalMinimal runs examples/minimal.yaml through its life cycle. On a cluster TestClusterMinimal does this, and
// what it proves on this machine TestLocalSharded proves too, so it is a long test.
func TestLocalMinimal(t *testing.T) {
	s := framework.NewLocal(t, "minimal")
	framework.Step(t, "up", func(t *testing.T) {
		require.Contains(t, s.Up(t).Stderr, "canary done")
	})
	framework.Step(t, "status", func(t *testing.T) { framework.IsReady(t, s) })
	framework.Step(t, "a second up writes nothing", func(t *testing.T) { framework.ChangesNothing(t, s) })
	framework.Step(t, "down --purge leaves nothing", func(t *testing.T) { framework.LeavesNothing(t, s) })
}

func TestLocalShards(t *testing.T) { testShards(t, framework.NewLocal(t, "minimal")) }

func TestClusterShards(t *testing.T) { testShards(t, framework.NewCluster(t, "minimal")) }

// growing is a small setup to which a shard is added. The test requires that its comments are kept.
const growing = `# Who touches this file?
apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: %s}
spec:
  defaults:   # every server of kcp, so that workspaces can move
    extraArgs: ["--feature-gates=LogicalClusterMigration=true"]
  etcd: {embedded: {ephemeral: true}}
  kubeconfigs:
    - {name: admin, user: kcp-admin, groups: ['system:kcp:admin']}
# The end.
`

// testShards adds a shard to a running setup, uses it, and removes it.
func testShards(t *testing.T, s *framework.Setup) {
	s.Text = fmt.Sprintf(growing, s.Name)
	s.Write(t, s.Text)
	s.Up(t)
	before := s.IDs(t)

	framework.Step(t, "a dry run touches nothing", func(t *testing.T) {
		r := s.Kcpctl(t, "add-shard", "gamma", "--dry-run").OK(t)
		require.Contains(t, r.Stdout, "\n+  shards:\n+    - name: gamma\n")
		require.Regexp(t, `\n  \+ (Deployment|process)/`, r.Stdout)
		untouched(t, s)
		require.Equal(t, before, s.IDs(t))
	})

	framework.Step(t, "a shard is added, and nothing else changes", func(t *testing.T) {
		s.Kcpctl(t, "add-shard", "gamma", "--label", "region=us").OK(t).Quiet(t)
		raw, err := os.ReadFile(s.File)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(s.Text, "  kubeconfigs:", "  shards:\n    - name: gamma\n      labels:\n        region: us\n  kubeconfigs:", 1), string(raw))
		require.Equal(t, "us", shard(t, s, "gamma").Labels["region"])
		s.Unchanged(t, before)
		s.Up(t).Changed(t, 0)
		require.NoError(t, os.WriteFile(s.File, []byte(strings.Replace(string(raw), "region: us", "zone: a", 1)), 0o600))
		s.Up(t)
		require.Equal(t, "a", shard(t, s, "gamma").Labels["zone"])
		require.NotContains(t, shard(t, s, "gamma").Labels, "region")
		s.Unchanged(t, before)
		s.Kcpctl(t, "add-shard", "gamma").OK(t)
		s.Kcpctl(t, "add-shard", "gamma", "--etcd", "managed").Refused(t, 2, `"gamma"`, "--etcd")
	})

	framework.Step(t, "a cordon keeps workspaces off", func(t *testing.T) {
		s.Kcpctl(t, "cordon", "gamma").OK(t)
		require.Contains(t, shard(t, s, "gamma").Annotations, "experimental.core.kcp.io/unschedulable")
		s.Kcpctl(t, "uncordon", "gamma").OK(t)
		require.NotContains(t, shard(t, s, "gamma").Annotations, "experimental.core.kcp.io/unschedulable")
	})

	framework.Step(t, "a shard in use is not removed", func(t *testing.T) {
		s.Kcpctl(t, "cordon", "root").OK(t) // a workspace that selected gamma could not leave it
		create := s.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.Stdin = workspaceAnywhere
		create.Run(t.Context(), t).OK(t)
		s.Kubectl(t, "wait", "workspace", "on-gamma", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
		s.Kcpctl(t, "uncordon", "root").OK(t)
		s.Creates(t, framework.InWorkspace("gamma"), "configmap", "data", "--from-literal=shard=gamma")
		s.Kcpctl(t, "remove-shard", "gamma", "--yes").Refused(t, 1, "shard/gamma", "root:on-gamma", "--drain")
		require.NotContains(t, shard(t, s, "gamma").Annotations, "experimental.core.kcp.io/unschedulable", "it is not cordoned")
		s.Kcpctl(t, "remove-shard", "root", "--yes").Refused(t, 2, "root shard", "kcpctl down")
	})

	framework.Step(t, "a shard is drained and removed", func(t *testing.T) {
		s.Kcpctl(t, "remove-shard", "gamma", "--drain", "--purge", "--yes").OK(t).Quiet(t)
		untouched(t, s)
		s.Unchanged(t, before)
		require.False(t, slices.ContainsFunc(registered(t, s), func(o kcpShard) bool { return o.Name == "gamma" }))
		inside := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:on-gamma"}
		framework.Eventually(t.Context(), t, func() error {
			return s.Reads(t, "gamma", inside, "get", "configmap", "data", "--output", "jsonpath={.data.shard}")
		})
		s.KubectlAs(t, inside, "create", "configmap", "more").OK(t)
		for name := range s.Running(t) {
			require.NotContains(t, name, "gamma")
		}
		_, readable := s.Keys(t)
		for name := range readable {
			require.NotContains(t, name, "gamma", "certificates go with the shard")
		}
	})

	framework.Step(t, "nothing is left to do", func(t *testing.T) {
		s.Up(t).Changed(t, 0)
		s.Kcpctl(t, "remove-shard", "gamma", "--yes").Refused(t, 2, `"gamma"`, "kcpctl status")
	})
}

// untouched requires that the setup file has not changed.
func untouched(t *testing.T, s *framework.Setup) {
	t.Helper()
	raw, err := os.ReadFile(s.File)
	require.NoError(t, err)
	require.Equal(t, s.Text, string(raw))
}

// kcpShard has the fields of a Shard that tests read.
type kcpShard struct {
	Name                string
	Labels, Annotations map[string]string
}

func registered(t *testing.T, s *framework.Setup) []kcpShard {
	t.Helper()
	var list struct{ Items []struct{ Metadata kcpShard } }
	r := s.Kubectl(t, "get", "shards", "--output", "json").OK(t)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list))
	var out []kcpShard
	for _, i := range list.Items {
		out = append(out, i.Metadata)
	}
	return out
}

func shard(t *testing.T, s *framework.Setup, name string) kcpShard {
	t.Helper()
	all := registered(t, s)
	at := slices.IndexFunc(all, func(o kcpShard) bool { return o.Name == name })
	require.GreaterOrEqual(t, at, 0, "%s is not registered", name)
	return all[at]
}

// workspaceAnywhere is a workspace that any shard may take.
const workspaceAnywhere = `apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: on-gamma}
spec: {type: {name: universal, path: root}}
`

//go:build e2e && long

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLocalMinimal runs examples/minimal.yaml through its life cycle. On a cluster TestClusterMinimal does this, and
// what it proves on this machine TestLocalSharded proves too, so it is a long test.
func TestLocalMinimal(t *testing.T) {
	s := newLocal(t, "minimal")
	step(t, "up", func(t *testing.T) {
		require.Contains(t, s.up(t).stderr, "canary done")
	})
	step(t, "status", func(t *testing.T) { isReady(t, s) })
	step(t, "a second up writes nothing", func(t *testing.T) { changesNothing(t, s) })
	step(t, "down --purge leaves nothing", func(t *testing.T) { leavesNothing(t, s) })
}

func TestLocalShards(t *testing.T) { testShards(t, newLocal(t, "minimal")) }

func TestClusterShards(t *testing.T) { testShards(t, newCluster(t, "minimal")) }

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
func testShards(t *testing.T, s *setup) {
	s.text = fmt.Sprintf(growing, s.name)
	s.write(t, s.text)
	s.up(t)
	before := s.ids(t)

	step(t, "a dry run touches nothing", func(t *testing.T) {
		r := s.kcpctl(t, "add-shard", "gamma", "--dry-run").ok(t)
		require.Contains(t, r.stdout, "\n+  shards:\n+    - name: gamma\n")
		require.Regexp(t, `\n  \+ (Deployment|process)/`, r.stdout)
		s.untouched(t)
		require.Equal(t, before, s.ids(t))
	})

	step(t, "a shard is added, and nothing else changes", func(t *testing.T) {
		s.kcpctl(t, "add-shard", "gamma", "--label", "region=us").ok(t).quiet(t)
		raw, err := os.ReadFile(s.file)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(s.text, "  kubeconfigs:", "  shards:\n    - name: gamma\n      labels:\n        region: us\n  kubeconfigs:", 1), string(raw))
		require.Equal(t, "us", s.shard(t, "gamma").Labels["region"])
		s.unchanged(t, before)
		s.up(t).changed(t, 0)
		require.NoError(t, os.WriteFile(s.file, []byte(strings.Replace(string(raw), "region: us", "zone: a", 1)), 0o600))
		s.up(t)
		require.Equal(t, "a", s.shard(t, "gamma").Labels["zone"])
		require.NotContains(t, s.shard(t, "gamma").Labels, "region")
		s.unchanged(t, before)
		s.kcpctl(t, "add-shard", "gamma").ok(t)
		s.kcpctl(t, "add-shard", "gamma", "--etcd", "managed").refused(t, 2, `"gamma"`, "--etcd")
	})

	step(t, "a cordon keeps workspaces off", func(t *testing.T) {
		s.kcpctl(t, "cordon", "gamma").ok(t)
		require.Contains(t, s.shard(t, "gamma").Annotations, "experimental.core.kcp.io/unschedulable")
		s.kcpctl(t, "uncordon", "gamma").ok(t)
		require.NotContains(t, s.shard(t, "gamma").Annotations, "experimental.core.kcp.io/unschedulable")
	})

	step(t, "a shard in use is not removed", func(t *testing.T) {
		s.kcpctl(t, "cordon", "root").ok(t) // a workspace that selected gamma could not leave it
		create := s.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.stdin = workspaceAnywhere
		create.run(t.Context(), t).ok(t)
		s.kubectl(t, "wait", "workspace", "on-gamma", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").ok(t)
		s.kcpctl(t, "uncordon", "root").ok(t)
		s.creates(t, inWorkspace("gamma"), "configmap", "data", "--from-literal=shard=gamma")
		s.kcpctl(t, "remove-shard", "gamma", "--yes").refused(t, 1, "shard/gamma", "root:on-gamma", "--drain")
		require.NotContains(t, s.shard(t, "gamma").Annotations, "experimental.core.kcp.io/unschedulable", "it is not cordoned")
		s.kcpctl(t, "remove-shard", "root", "--yes").refused(t, 2, "root shard", "kcpctl down")
	})

	step(t, "a shard is drained and removed", func(t *testing.T) {
		s.kcpctl(t, "remove-shard", "gamma", "--drain", "--purge", "--yes").ok(t).quiet(t)
		s.untouched(t)
		s.unchanged(t, before)
		require.False(t, slices.ContainsFunc(s.registered(t), func(o kcpShard) bool { return o.Name == "gamma" }))
		inside := []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:on-gamma"}
		eventually(t.Context(), t, func() error {
			return s.reads(t, "gamma", inside, "get", "configmap", "data", "--output", "jsonpath={.data.shard}")
		})
		s.kubectlAs(t, inside, "create", "configmap", "more").ok(t)
		for name := range s.running(t) {
			require.NotContains(t, name, "gamma")
		}
		_, readable := s.keys(t)
		for name := range readable {
			require.NotContains(t, name, "gamma", "certificates go with the shard")
		}
	})

	step(t, "nothing is left to do", func(t *testing.T) {
		s.up(t).changed(t, 0)
		s.kcpctl(t, "remove-shard", "gamma", "--yes").refused(t, 2, `"gamma"`, "kcpctl status")
	})
}

// untouched requires that the setup file has not changed.
func (s *setup) untouched(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile(s.file)
	require.NoError(t, err)
	require.Equal(t, s.text, string(raw))
}

// unchanged requires that all previous instances still run.
func (s *setup) unchanged(t *testing.T, then map[string]string) {
	t.Helper()
	now := s.ids(t)
	for name, id := range then {
		require.Equal(t, id, now[name], name)
	}
}

// kcpShard has the fields of a Shard that tests read.
type kcpShard struct {
	Name                string
	Labels, Annotations map[string]string
}

func (s *setup) registered(t *testing.T) []kcpShard {
	t.Helper()
	var list struct{ Items []struct{ Metadata kcpShard } }
	r := s.kubectl(t, "get", "shards", "--output", "json").ok(t)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	var out []kcpShard
	for _, i := range list.Items {
		out = append(out, i.Metadata)
	}
	return out
}

func (s *setup) shard(t *testing.T, name string) kcpShard {
	t.Helper()
	all := s.registered(t)
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

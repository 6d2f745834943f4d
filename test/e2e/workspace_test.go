//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shardNames are the shards of sharded.yaml.
func shardNames() []string { return []string{"root", "alpha", "beta"} }

// workspace has the fields of a Workspace that tests read.
type workspace struct {
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct{ Cluster string }
}

// shards requires that all shards are registered.
func shards(t *testing.T, s *setup) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ BaseURL, ExternalURL, VirtualWorkspaceURL string }
		}
	}
	r := s.kubectl(t, "get", "shards", "--output", "json").ok(t)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	external := s.status(t).URL
	var names []string
	for _, i := range list.Items {
		names = append(names, i.Metadata.Name)
		require.True(t, strings.HasPrefix(i.Spec.BaseURL, "https://"), i)
		require.True(t, strings.HasPrefix(i.Spec.VirtualWorkspaceURL, "https://"), i)
		require.Equal(t, external, i.Spec.ExternalURL, i)
	}
	require.ElementsMatch(t, shardNames(), names)
}

const workspaceManifest = `---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: on-%[1]s}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {name: %[1]s}}}
`

// createWorkspaces creates a workspace on each shard of sharded.yaml, and a ConfigMap in each.
func createWorkspaces(t *testing.T, s *setup) { s.createWorkspaces(t, shardNames()...) }

// readWorkspaces reads what createWorkspaces has created, through the front-proxy and directly from the shard.
func readWorkspaces(t *testing.T, s *setup) { s.readWorkspaces(t, shardNames()...) }

// createWorkspaces creates a workspace on each of some shards, and a ConfigMap in each.
func (s *setup) createWorkspaces(t *testing.T, shards ...string) {
	manifests, names := "", []string{}
	for _, shard := range shards {
		manifests += fmt.Sprintf(workspaceManifest, shard)
		names = append(names, "on-"+shard)
	}
	create := s.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
	create.stdin = manifests
	create.run(t.Context(), t).ok(t)
	s.kubectl(t, append(append([]string{"wait", "workspaces"}, names...), "--for=jsonpath={.status.phase}=Ready", "--timeout=3m")...).ok(t)
	for _, shard := range shards {
		eventually(t.Context(), t, func() error { // a front-proxy learns of a workspace after a moment
			r := s.kubectlAs(t, inWorkspace(shard), "create", "configmap", "data", "--from-literal=shard="+shard)
			if r.code != 0 && !strings.Contains(r.stderr, "AlreadyExists") {
				return fmt.Errorf("%s: exit code %d: %s", r.line, r.code, r.stderr)
			}
			return nil
		})
	}
	s.readWorkspaces(t, shards...)
}

// inWorkspace returns the arguments of kcpctl kubeconfig for the workspace on a shard.
func inWorkspace(shard string) []string {
	return []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:on-" + shard}
}

// readWorkspaces reads what createWorkspaces has created, through the front-proxy and directly from the shard.
func (s *setup) readWorkspaces(t *testing.T, shards ...string) {
	read := []string{"get", "configmap", "data", "--output", "jsonpath={.data.shard}"}
	for _, shard := range shards {
		eventually(t.Context(), t, func() error { return s.reads(t, shard, inWorkspace(shard), read...) })

		var w workspace
		eventually(t.Context(), t, func() error {
			r := s.kubectl(t, "get", "workspace", "on-"+shard, "--output", "json")
			if r.code != 0 {
				return fmt.Errorf("%s: exit code %d: %s", r.line, r.code, r.stderr)
			}
			return json.Unmarshal([]byte(r.stdout), &w)
		})
		require.Equal(t, shard, w.Metadata.Annotations["core.kcp.io/shard"])
		direct := []string{"--user", "e2e", "--group", "system:masters", "--target", target(shard), "--workspace", w.Spec.Cluster}
		eventually(t.Context(), t, func() error { return s.reads(t, shard, direct, read...) })
	}
}

// reads returns an error unless kubectl prints the wanted text.
func (s *setup) reads(t *testing.T, want string, kubeconfig []string, args ...string) error {
	t.Helper()
	if r := s.kubectlAs(t, kubeconfig, args...); r.code != 0 || r.stdout != want {
		return fmt.Errorf("%s: exit code %d: %s%s", r.line, r.code, r.stdout, r.stderr)
	}
	return nil
}

// target returns the value of --target for a shard.
func target(shard string) string {
	if shard == "root" {
		return "root-shard"
	}
	return "shard/" + shard
}

// robot is a ServiceAccount that may read ConfigMaps.
const robot = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: robot}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: robot}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: robot}
subjects: [{kind: ServiceAccount, name: robot, namespace: default}]
`

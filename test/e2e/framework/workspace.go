package framework

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ShardNames are the shards of sharded.yaml.
func ShardNames() []string { return []string{"root", "alpha", "beta"} }

// shards are those of sharded.yaml that the file of the setup has.
func (s *Setup) shards() []string {
	return slices.DeleteFunc(ShardNames(), func(name string) bool {
		return name != "root" && !regexp.MustCompile(`\bname: `+name+`\b`).MatchString(s.Text)
	})
}

// Workspace has the fields of a Workspace that tests read.
type Workspace struct {
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct{ Cluster string }
}

// Shards requires that all shards are registered.
func Shards(t *testing.T, s *Setup) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ BaseURL, ExternalURL, VirtualWorkspaceURL string }
		}
	}
	r := s.Kubectl(t, "get", "shards", "--output", "json").OK(t)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list))
	external := s.Status(t).URL
	var names []string
	for _, i := range list.Items {
		names = append(names, i.Metadata.Name)
		require.True(t, strings.HasPrefix(i.Spec.BaseURL, "https://"), i)
		require.True(t, strings.HasPrefix(i.Spec.VirtualWorkspaceURL, "https://"), i)
		require.Equal(t, external, i.Spec.ExternalURL, i)
	}
	require.ElementsMatch(t, s.shards(), names)
}

const WorkspaceManifest = `---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: on-%[1]s}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {name: %[1]s}}}
`

// CreateWorkspaces creates a workspace on each shard of the setup, and a ConfigMap in each.
func CreateWorkspaces(t *testing.T, s *Setup) { s.CreateWorkspaces(t, s.shards()...) }

// ReadWorkspaces reads what CreateWorkspaces has created, through the front-proxy and directly from the shard.
func ReadWorkspaces(t *testing.T, s *Setup) { s.readWorkspaces(t, s.shards()...) }

// CreateWorkspaces creates a workspace on each of some shards, and a ConfigMap in each.
func (s *Setup) CreateWorkspaces(t *testing.T, shards ...string) {
	manifests, names := "", []string{}
	for _, shard := range shards {
		manifests += fmt.Sprintf(WorkspaceManifest, shard)
		names = append(names, "on-"+shard)
	}
	create := s.Command("kubeconfig", "admin", "--", "kubectl", "apply", "--server-side", "--filename", "-")
	create.Stdin = manifests
	create.Run(t.Context(), t).OK(t)
	s.Kubectl(t, append(append([]string{"wait", "workspaces"}, names...), "--for=jsonpath={.status.phase}=Ready", "--timeout=3m")...).OK(t)
	for _, shard := range shards {
		Eventually(t.Context(), t, func() error { // a front-proxy learns of a workspace after a moment
			r := s.KubectlAs(t, InWorkspace(shard), "create", "configmap", "data", "--from-literal=shard="+shard)
			if r.Code != 0 && !strings.Contains(r.Stderr, "AlreadyExists") {
				return fmt.Errorf("%s: exit code %d: %s", r.Line, r.Code, r.Stderr)
			}
			return nil
		})
	}
	s.readWorkspaces(t, shards...)
}

// InWorkspace returns the arguments of kcpctl kubeconfig for the workspace on a shard.
func InWorkspace(shard string) []string {
	return []string{"--user", "e2e", "--group", "system:kcp:admin", "--workspace", "root:on-" + shard}
}

// ReadWorkspaces reads what CreateWorkspaces has created, through the front-proxy and directly from the shard.
func (s *Setup) readWorkspaces(t *testing.T, shards ...string) {
	read := []string{"get", "configmap", "data", "--output", "jsonpath={.data.shard}"}
	for _, shard := range shards {
		Eventually(t.Context(), t, func() error { return s.Reads(t, shard, InWorkspace(shard), read...) })

		var w Workspace
		Eventually(t.Context(), t, func() error {
			r := s.Kubectl(t, "get", "workspace", "on-"+shard, "--output", "json")
			if r.Code != 0 {
				return fmt.Errorf("%s: exit code %d: %s", r.Line, r.Code, r.Stderr)
			}
			return json.Unmarshal([]byte(r.Stdout), &w)
		})
		require.Equal(t, shard, w.Metadata.Annotations["core.kcp.io/shard"])
		direct := []string{"--user", "e2e", "--group", "system:masters", "--target", target(shard), "--workspace", w.Spec.Cluster}
		Eventually(t.Context(), t, func() error { return s.Reads(t, shard, direct, read...) })
	}
}

// Reads returns an error unless kubectl prints the wanted text.
func (s *Setup) Reads(t *testing.T, want string, kubeconfig []string, args ...string) error {
	t.Helper()
	if r := s.KubectlAs(t, kubeconfig, args...); r.Code != 0 || r.Stdout != want {
		return fmt.Errorf("%s: exit code %d: %s%s", r.Line, r.Code, r.Stdout, r.Stderr)
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

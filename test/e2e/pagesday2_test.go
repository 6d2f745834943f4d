//go:build e2e && long && day2

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPageReadme(t *testing.T) {
	p := newLocalTypist(t, "sharded", "demo")
	p.instead["make demo"] = makeDemo
	p.types(t, "README.md", "local")
}

func TestPageCertificates(t *testing.T) {
	p := newLocalTypist(t, "sharded", "demo", "KCPCTL_LOCAL=true")
	p.up(t)
	p.types(t, "docs/certificates.md", "local")
	p.types(t, "docs/refusals.md", "local")
}

// TestPageShards drains a shard with a workspace.
func TestPageShards(t *testing.T) {
	p := newLocalTypist(t, "sharded", "demo", "KCPCTL_LOCAL=true")
	p.edit(t, "spec:\n", "spec:\n  featureGates: {LogicalClusterMigration: true}\n")
	p.up(t)
	p.before["kcpctl cordon gamma"] = func(t *testing.T) {
		create := p.command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.stdin = workspaceOnGamma
		create.run(t.Context(), t).ok(t)
		p.kubectl(t, "wait", "workspace", "moves", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").ok(t)
		p.kubectl(t, "patch", "workspace", "moves", "--type=merge", "--patch", `{"spec":{"location":{"selector":null}}}`).ok(t)
	}
	p.types(t, "docs/shards.md", "local")
}

const workspaceOnGamma = `apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: moves}
spec:
  type: {name: universal, path: root}
  location: {selector: {matchLabels: {region: eu}}}
`

// TestPageWorkspaces removes a workspace from the file, deletes it, creates it again and gives it up.
func TestPageWorkspaces(t *testing.T) {
	p := newLocalTypist(t, "minimal", "demo", "KCPCTL_LOCAL=true")
	p.text += "spec:\n  kubeconfigs: [{name: admin, user: kcp-admin, groups: [\"system:kcp:admin\"]}]\n"
	with := p.text + "  workspaces: [{name: team-a}]\n"
	p.write(t, with)
	p.up(t)
	p.before["kcpctl up --prune-data workspace/root:team-a"] = func(t *testing.T) { p.write(t, p.text) }
	p.before["kcpctl kubeconfig admin --workspace root -- kubectl label workspace team-a kcpctl.dev/installation-"] = func(t *testing.T) {
		require.NotZero(t, p.kubectl(t, "get", "workspace", "team-a").code)
		p.write(t, with)
		p.up(t)
	}
	p.types(t, "docs/workspaces.md", "local")
}

// TestPageImport needs no kcp.
func TestPageImport(t *testing.T) {
	p := newLocalTypist(t, "minimal", "demo")
	const inputs = "../../internal/file/importer/testdata"
	p.before["kcpctl import -f manifests/ -o kcp.yaml"] = func(t *testing.T) {
		require.NoError(t, os.Remove(p.file))
		require.NoError(t, os.CopyFS(filepath.Join(p.dir, "manifests"), os.DirFS(inputs+"/sharded")))
	}
	p.before["kcpctl import -f values.yaml -f values-prod.yaml --name kcp -n kcp -o kcp.yaml"] = func(t *testing.T) {
		require.NoError(t, os.Remove(p.file))
		values, err := os.ReadFile(inputs + "/chart/values.yaml")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, "values.yaml"), values, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, "values-prod.yaml"), []byte("kcp: {replicas: 3}\n"), 0o600))
	}
	p.types(t, "docs/import.md", "local")
}

// TestPageAgents runs the agent on this machine, without a cluster.
func TestPageAgents(t *testing.T) {
	p := newLocalTypist(t, "agent", "demo")
	require.NoError(t, os.Symlink(filepath.Join(given(t, "E2E_AGENT_BIN_DIR"), "api-syncagent"), filepath.Join(p.dir, "bin", "api-syncagent")))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "widget.yaml"),
		[]byte("apiVersion: services.example.com/v1\nkind: Widget\nmetadata: {name: mine}\nspec: {size: 1}\n"), 0o600))
	p.before["kcpctl init --example agent"] = func(t *testing.T) { require.NoError(t, os.Remove(p.file)) }
	p.types(t, "docs/agents.md", "local")
}

// TestPageOperations upgrades kcp, so it begins with an older release. The history is that of a setup file with two
// changes, of which one was applied.
func TestPageOperations(t *testing.T) {
	p := newLocalTypist(t, "minimal", "demo", "KCPCTL_LOCAL=true")
	p.varies = []string{`Z +\S+ +\S+ +`, "Z   USER   VERSION   "}
	p.before["kcpctl history"] = func(t *testing.T) {
		older := *p.runtime.(*local)
		older.binaries = given(t, "E2E_KCP_OLDER_BIN_DIR")
		s := *p.setup
		s.runtime = &older
		s.write(t, p.text+olderSetup)
		s.up(t)
		const verbose = `extraArgs: ["--v=3"]`
		s.write(t, p.text+strings.Replace(olderSetup, "name: alpha", "name: alpha, "+verbose, 1)+"  rootShard: {"+verbose+"}\n")
		s.up(t, "--only", "shard/alpha")
	}
	p.types(t, "docs/operations.md", "local")
}

const olderSetup = `spec:
  version: v0.32.2
  shards: [{name: alpha}]
`

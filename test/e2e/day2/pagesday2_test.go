package day2

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/test/e2e/framework"
)

func TestPageReadme(t *testing.T) {
	p := framework.NewLocalTypist(t, "sharded", "demo")
	p.Instead["make demo"] = framework.MakeDemo
	p.Types(t, "README.md", "local")
}

func TestPageCertificates(t *testing.T) {
	p := framework.NewLocalTypist(t, "sharded", "demo", "KCPCTL_LOCAL=true")
	p.Up(t)
	p.Types(t, "docs/certificates.md", "local")
	p.Types(t, "docs/refusals.md", "local")
}

// TestPageShards drains a shard with a workspace.
func TestPageShards(t *testing.T) {
	p := framework.NewLocalTypist(t, "sharded", "demo", "KCPCTL_LOCAL=true")
	p.Edit(t, "spec:\n", "spec:\n  featureGates: {LogicalClusterMigration: true}\n")
	p.Up(t)
	p.Before["kcpctl cordon gamma"] = func(t *testing.T) {
		create := p.Command("kubeconfig", "admin", "--", "kubectl", "create", "--filename", "-")
		create.Stdin = workspaceOnGamma
		create.Run(t.Context(), t).OK(t)
		p.Kubectl(t, "wait", "workspace", "moves", "--for=jsonpath={.status.phase}=Ready", "--timeout=3m").OK(t)
		p.Kubectl(t, "patch", "workspace", "moves", "--type=merge", "--patch", `{"spec":{"location":{"selector":null}}}`).OK(t)
	}
	p.Types(t, "docs/shards.md", "local")
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
	p := framework.NewLocalTypist(t, "minimal", "demo", "KCPCTL_LOCAL=true")
	p.Text += "spec:\n  kubeconfigs: [{name: admin, user: kcp-admin, groups: [\"system:kcp:admin\"]}]\n"
	with := p.Text + "  workspaces: [{name: team-a}]\n"
	p.Write(t, with)
	p.Up(t)
	p.Before["kcpctl up --prune-data workspace/root:team-a"] = func(t *testing.T) { p.Write(t, p.Text) }
	p.Before["kcpctl kubeconfig admin --workspace root -- kubectl label workspace team-a kcpctl.dev/installation-"] = func(t *testing.T) {
		require.NotZero(t, p.Kubectl(t, "get", "workspace", "team-a").Code)
		p.Write(t, with)
		p.Up(t)
	}
	p.Types(t, "docs/workspaces.md", "local")
}

// TestPageImport needs no kcp.
func TestPageImport(t *testing.T) {
	p := framework.NewLocalTypist(t, "minimal", "demo")
	inputs := filepath.Join(framework.Root(t), "internal/file/importer/testdata")
	p.Before["kcpctl import -f manifests/ -o kcp.yaml"] = func(t *testing.T) {
		require.NoError(t, os.Remove(p.File))
		require.NoError(t, os.CopyFS(filepath.Join(p.Dir, "manifests"), os.DirFS(inputs+"/sharded")))
	}
	p.Before["kcpctl import -f values.yaml -f values-prod.yaml --name kcp -n kcp -o kcp.yaml"] = func(t *testing.T) {
		require.NoError(t, os.Remove(p.File))
		values, err := os.ReadFile(inputs + "/chart/values.yaml")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(p.Dir, "values.yaml"), values, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(p.Dir, "values-prod.yaml"), []byte("kcp: {replicas: 3}\n"), 0o600))
	}
	p.Types(t, "docs/import.md", "local")
}

// TestPageAgents runs the agent on this machine, without a cluster.
func TestPageAgents(t *testing.T) {
	p := framework.NewLocalTypist(t, "agent", "agent")
	require.NoError(t, os.Symlink(filepath.Join(framework.Given(t, "E2E_AGENT_BIN_DIR"), "api-syncagent"), filepath.Join(p.Dir, "bin", "api-syncagent")))
	require.NoError(t, os.WriteFile(filepath.Join(p.Dir, "widget.yaml"),
		[]byte("apiVersion: services.example.com/v1\nkind: Widget\nmetadata: {name: mine}\nspec: {size: 1}\n"), 0o600))
	p.Before["kcpctl init --example agent"] = func(t *testing.T) { require.NoError(t, os.Remove(p.File)) }
	p.Types(t, "docs/agents.md", "local")
}

// TestPageOperations upgrades kcp, so it begins with an older release. The history is that of a setup file with two
// changes, of which one was applied.
func TestPageOperations(t *testing.T) {
	p := framework.NewLocalTypist(t, "minimal", "demo", "KCPCTL_LOCAL=true")
	p.Varies = []string{`Z +\S+ +\S+ +`, "Z   USER   VERSION   "}
	p.Before["kcpctl history"] = func(t *testing.T) {
		older := *p.Runtime.(*framework.Local)
		older.Binaries = framework.Given(t, "E2E_KCP_OLDER_BIN_DIR")
		s := *p.Setup
		s.Runtime = &older
		s.Write(t, p.Text+olderSetup)
		s.Up(t)
		const verbose = `extraArgs: ["--v=3"]`
		s.Write(t, p.Text+strings.Replace(olderSetup, "name: alpha", "name: alpha, "+verbose, 1)+"  rootShard: {"+verbose+"}\n")
		s.Up(t, "--only", "shard/alpha")
	}
	p.Before["kcpctl up --local --write-installation"] = func(t *testing.T) {
		p.Kcpctl(t, "down", "--yes", "--purge").OK(t)
		p.Write(t, p.Text)
	}
	p.Types(t, "docs/operations.md", "local")
}

const olderSetup = `spec:
  version: v0.32.2
  shards: [{name: alpha}]
`

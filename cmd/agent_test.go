package cmd

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// discovery is what an API server answers to everyone about its APIs.
var discovery = map[string]string{
	"/apis/example.com": `{"kind":"APIGroup","apiVersion":"v1","name":"example.com",
		"versions":[{"groupVersion":"example.com/v1","version":"v1"},{"groupVersion":"example.com/v1alpha1","version":"v1alpha1"}]}`,
	"/apis/example.com/v1": `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[
		{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["get"]},
		{"name":"widgets/status","namespaced":true,"kind":"Widget","verbs":["get"]},
		{"name":"fish","singularName":"fish","namespaced":false,"kind":"Fish","verbs":["get"]}]}`,
	"/apis/example.com/v1alpha1": `{"kind":"APIResourceList","groupVersion":"example.com/v1alpha1","resources":[
		{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["get"]}]}`,
}

// serviceCluster starts an API server with the APIs of discovery, and returns the path of its kubeconfig.
func serviceCluster(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answer, ok := discovery[r.URL.Path]; ok {
			_, _ = w.Write([]byte(answer))
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`))
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: services, contexts: [{name: services, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}`, server.URL)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const withComments = `# Our kcp.
apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata:
  name: demo
spec:
  external: {hostname: kcp.example.com}
  rootShard: {virtualWorkspaceURL: "https://root.example.com:6443"}
  clusters:
  - {name: home, context: home}
  - {name: services, kubeconfig: %s, namespace: agents} # without kcp
  # Shards are not here yet.
`

// agentAdd runs agent add and returns what it prints.
func agentAdd(t *testing.T, file string, args ...string) (string, error) {
	t.Helper()
	streams, out, _ := ui.Fake("", 0, 0)
	root := newRootCmd(&Env{Streams: streams, Now: time.Now, Getenv: func(string) string { return "" }, Program: "kcpctl"})
	root.SetArgs(append([]string{"agent", "add", "-f", file}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestAgentAddKeepsTheFile(t *testing.T) {
	kubeconfig := serviceCluster(t)
	file := filepath.Join(t.TempDir(), "kcp.yaml")
	text := fmt.Appendf(nil, withComments, kubeconfig)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	for _, c := range []struct {
		name, want, hint string
		args             []string
	}{
		{"a kind that is not served", "has no kind gizmo", "known: Widget, Fish", []string{"--cluster", "services", "--publish", "gizmo.example.com"}},
		{"a group that is not served", "no API group example.org", "CustomResourceDefinition", []string{"--cluster", "services", "--publish", "widget.example.org"}},
		{"a version that is not served", "does not serve version v2", "v1", []string{"--cluster", "services", "--publish", "widget.example.com/v2"}},
		{"an unknown cluster", `no cluster "servces"`, "services", []string{"--cluster", "servces", "--publish", "widget.example.com"}},
		{"a Secret without a namespace", "Fish.example.com has no namespace", "--secret", []string{"--cluster", "services", "--publish", "fish.example.com", "--secret", "spec.a"}},
		{"no group", `invalid kind "widget"`, "KIND.GROUP", []string{"--publish", "widget"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := agentAdd(t, file, append([]string{"widgets", "--workspace", "root:widgets"}, c.args...)...)
			require.ErrorContains(t, err, c.want)
			require.Contains(t, clierr.Hint(err), c.hint)
			now, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(text), string(now))
		})
	}
}

// A dry run prints the edit, which keeps the comments, and edits nothing.
func TestAgentAddPrintsTheEdit(t *testing.T) {
	kubeconfig := serviceCluster(t)
	file := filepath.Join(t.TempDir(), "kcp.yaml")
	text := fmt.Appendf(nil, withComments, kubeconfig)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := agentAdd(t, file, "widgets", "--cluster", "services", "--workspace", "root:widgets", "--bind", "root:team-a",
		"--publish", "widget.example.com", "--secret", "spec.secretName", "--dry-run=client")
	require.NoError(t, err)
	out = strings.NewReplacer(file, "kcp.yaml", kubeconfig, "kubeconfig").Replace(out)
	testutil.Golden(t, "agent-add.diff", []byte(out))
	now, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(text), string(now))

	out, err = agentAdd(t, file, "fish", "--cluster", "services", "--workspace", "root:fish", "--publish", "fish.example.com/v1", "--dry-run=client")
	require.NoError(t, err)
	require.Contains(t, out, "plural: fish")
	require.Contains(t, out, "name: '{{ .ClusterName }}-{{ .Object.metadata.name }}'", "it has no namespace that contains the logical cluster")
}

// Without --cluster, an agent gets a namespace of its own on the cluster of kcp: it reads all Secrets of its namespace,
// and that of the root shard has the private keys.
func TestAgentBesideKcp(t *testing.T) {
	kubeconfig := serviceCluster(t)
	const start = "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\nspec:\n"
	for name, c := range map[string]struct{ spec, cluster, added string }{
		"the namespace of kcp": {"  clusters: [{name: home, kubeconfig: KUBECONFIG, as: ann, asGroups: [admins]}]\n", "agents",
			"+  clusters: [{name: home, kubeconfig: KUBECONFIG, as: ann, asGroups: [admins]}, " +
				"{name: agents, kubeconfig: KUBECONFIG, namespace: demo-agents, as: ann, asGroups: [admins]}]"},
		"of a root shard elsewhere": {"  rootShard: {cluster: b, url: \"https://root.example.com\", virtualWorkspaceURL: \"https://root.example.com\"}\n" +
			"  clusters:\n  - {name: a, context: a}\n  - {name: b, kubeconfig: KUBECONFIG, namespace: prod}\n", "agents",
			"+  - {name: agents, kubeconfig: KUBECONFIG, namespace: demo-agents}"},
		"it exists": {"  clusters:\n  - {name: home, kubeconfig: KUBECONFIG}\n  - {name: apart, kubeconfig: KUBECONFIG, namespace: demo-agents}\n", "apart", ""},
		"a cluster of the name": {"  clusters:\n  - {name: home, kubeconfig: KUBECONFIG}\n  - {name: far, context: far, namespace: demo-agents}\n", "agents",
			"+  - {name: agents, kubeconfig: KUBECONFIG, namespace: demo-agents}"},
		"the keys are not on the cluster": {"  clusters:\n  - {name: home, kubeconfig: KUBECONFIG}\n  pki: {store: Directory}\n", "home", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kcp.yaml")
			require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(start+c.spec, "KUBECONFIG", kubeconfig)), 0o600))
			out, err := agentAdd(t, file, "widgets", "--workspace", "root:widgets", "--publish", "widget.example.com", "--dry-run=client")
			require.NoError(t, err)
			out = strings.ReplaceAll(out, kubeconfig, "KUBECONFIG")
			if c.cluster != "home" {
				require.Contains(t, out, "cluster: "+c.cluster+"\n")
			} else {
				require.NotContains(t, out, "cluster:")
			}
			if c.added != "" {
				require.Contains(t, out, c.added)
			} else {
				require.NotContains(t, out, "name: agents")
			}
		})
	}
}

// A flag says where kcp is: the file gets a namespace of the same cluster, wherever that is for the next user.
func TestAgentBesideKcpWithFlags(t *testing.T) {
	kubeconfig := serviceCluster(t)
	file := filepath.Join(t.TempDir(), "kcp.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\n"), 0o600))
	out, err := agentAdd(t, file, "widgets", "--workspace", "root:widgets", "--publish", "widget.example.com", "--dry-run=client",
		"--kubeconfig", kubeconfig, "--context", "services", "-n", "kcp-prod")
	require.NoError(t, err)
	require.Contains(t, out, "+  - name: default\n+  - name: agents\n+    namespace: demo-agents\n+  agents:\n")
	require.NotContains(t, out, kubeconfig)
}

package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// All problems of published resources are reported at once, in the setup file and in the files that it refers to.
func TestBrokenPublishedResources(t *testing.T) {
	_, err := Load(filepath.Join("testdata", "published", "broken", "kcp.yaml"), nil)
	require.Error(t, err)
	require.Equal(t, clierr.BadInput, clierr.Code(err))
	testutil.Golden(t, "published/broken/kcp.err", []byte(err.Error()+"\n"))
}

// A setup has the content of the files with published resources, in the order of the files and of their manifests.
func TestPublishedResourcesOfFiles(t *testing.T) {
	f, err := Load(filepath.Join("testdata", "published", "kcp.yaml"), nil)
	require.NoError(t, err)
	text, err := Marshal(f.Setup)
	require.NoError(t, err)
	require.NotContains(t, string(text), "file:")
	testutil.Golden(t, "published/marshal.golden", text[strings.Index(string(text), "  agents:"):])
	testutil.Golden(t, "published/notes.golden", []byte(strings.Join(f.Notes(), "\n")+"\n"))

	again, err := Parse("revision 1", text)
	require.NoError(t, err)
	require.Equal(t, f.Setup, again.Setup)
	edited, err := f.AddShard(v1alpha1.Shard{Name: "gamma"})
	require.NoError(t, err)
	require.Equal(t, f.Setup.Spec.Agents, edited.Setup.Spec.Agents)
}

// Files may have what kubectl get -o yaml prints: a list, and what the API server adds to objects.
func TestPublishedResourcesAsClustersPrintThem(t *testing.T) {
	dir := t.TempDir()
	const item = `- apiVersion: syncagent.kcp.io/v1alpha1
  kind: PublishedResource
  metadata:
    name: %s
    uid: 0f4ffd4c-2a3e-4c7e-8d43-4a3c0b0d2a4c
    resourceVersion: "7"
    generation: 1
    creationTimestamp: "2026-01-01T00:00:00Z"
    managedFields: [{manager: kubectl, fieldsV1: {"f:spec": {}}}]
    annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"%s}
  spec: {resource: {apiGroup: example.com, kind: %s}, projection: {scope: Cluster}, naming: {name: "{{ .ClusterName }}-{{ .Object.metadata.name }}"}}
  status: {resourceSchemaName: x}
`
	list := "apiVersion: v1\nkind: List\nitems:\n" + fmt.Sprintf(item, "widgets", "", "Widget") + fmt.Sprintf(item, "gadgets", ", team: a", "Gadget")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "list.yaml"), []byte(list), 0o600))
	file := filepath.Join(dir, "kcp.yaml")
	require.NoError(t, os.WriteFile(file, []byte(minimal+"spec: {agents: [{name: a, workspace: root, publishedResources: [{file: list.yaml}]}]}\n"), 0o600))
	f, err := Load(file, nil)
	require.NoError(t, err)
	var names []string
	for _, r := range f.Setup.Spec.Agents[0].PublishedResources {
		names = append(names, r.Name)
	}
	require.Equal(t, []string{"widgets", "gadgets"}, names)
	require.Equal(t, []string{filepath.Join(dir, "list.yaml") + ":25:18: metadata.annotations: kcpctl does not pass them on"}, f.Notes())

	typo := strings.Replace(list, "generation:", "generaton:", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "list.yaml"), []byte(typo), 0o600))
	_, err = Load(file, nil)
	require.ErrorContains(t, err, "list.yaml:10:5: metadata.generaton: unknown field")
}

// A setup that is not in a file cannot refer to files.
func TestFilesCannotBeRead(t *testing.T) {
	_, err := Parse("revision 1", []byte(minimal+`spec: {agents: [{name: a, workspace: root, publishedResources: [{file: a.yaml}]}]}`+"\n"))
	require.EqualError(t, err, "revision 1:5:72: spec.agents[0].publishedResources[0].file: files cannot be read here: write the content into the setup file")
}

// Two agents of a cluster that publish a kind to the same workspace would find the same copy for two objects.
func TestTwoAgentsPublishAKindToOneWorkspace(t *testing.T) {
	const text = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  agents:
  - name: one
    workspace: root:one
    bind: [root:team]
    publishedResources: [{name: one, spec: {resource: {apiGroup: example.com, kind: Widget}, naming: {name: "{{ .ClusterName }}-{{ .Object.metadata.namespace }}"}}}]
  - name: two
    workspace: root:two
    bind: [%s]
    publishedResources: [{name: two, spec: {resource: {apiGroup: example.com, kind: Widget}, naming: {name: "{{ .ClusterName }}-{{ .Object.metadata.namespace }}"}%s}}]
`
	_, err := Parse("kcp.yaml", fmt.Appendf(nil, text, "root:team", ""))
	require.EqualError(t, err, `kcp.yaml:13:33: spec.agents[1].publishedResources[0].name: invalid value "two": agent one publishes widgets.example.com `+
		"to root:team too, and kcp serves a resource of a workspace once: bind other workspaces, or give it another projection.group")
	f, err := Parse("kcp.yaml", fmt.Appendf(nil, text, "root:team", ", projection: {group: two.example.com}"))
	require.NoError(t, err)
	require.Equal(t, []string{"kcp.yaml:13:33: spec.agents[1].publishedResources[0].name: agent one publishes Widget.example.com to root:team too: " +
		"objects of both APIs with the same name and namespace would have one copy"}, f.Notes())
	f, err = Parse("kcp.yaml", fmt.Appendf(nil, text, "root:other", ""))
	require.NoError(t, err)
	require.Empty(t, f.Notes())
}

// PublishedResources have no namespace, and two clusters of a setup can be namespaces of one Kubernetes cluster.
func TestPublishedResourcesOfTwoNamespacesHaveTheirOwnNames(t *testing.T) {
	const text = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  clusters: [{name: home, context: prod}, {name: a, context: %s, namespace: a}, {name: b, context: prod, namespace: b}]
  agents:
  - {name: one, cluster: a, workspace: root:one, publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget}}}]}
  - {name: two, cluster: b, workspace: root:two, publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget}}}]}
`
	_, err := Parse("kcp.yaml", fmt.Appendf(nil, text, "prod"))
	require.ErrorContains(t, err, "agent one has a PublishedResource of this name on the same cluster")
	_, err = Parse("kcp.yaml", fmt.Appendf(nil, text, "other"))
	require.NotContains(t, fmt.Sprint(err), "on the same cluster")
}

// An APIBinding has the name of its APIExport, so a workspace cannot bind two APIExports of the same name.
func TestAPIBindingsOfAgentsHaveTheirOwnNames(t *testing.T) {
	const text = `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  agents:
  - {name: one, workspace: root:one, apiExport: apis, bind: [root:team], publishedResources: [{name: one, spec: {resource: {apiGroup: example.com, kind: Widget}}}]}
  - {name: two, workspace: root:two, apiExport: %s, bind: [root:team], publishedResources: [{name: two, spec: {resource: {apiGroup: example.com, kind: Gadget}}}]}
  workspaces: [{name: team, existing: true, bindings: [{export: "root:three:%s"}]}]
`
	_, err := Parse("kcp.yaml", fmt.Appendf(nil, text, "apis", "others"))
	require.EqualError(t, err, `kcp.yaml:7:62: spec.agents[1].bind[0]: invalid value "root:team": this workspace binds root:one:apis already, and an APIBinding `+
		"has the name of its APIExport: use another apiExport for one of the agents")
	_, err = Parse("kcp.yaml", fmt.Appendf(nil, text, "more", "apis"))
	require.EqualError(t, err, `kcp.yaml:8:56: spec.workspaces[0].bindings[0].name: invalid value "apis": agent one has an APIBinding of this name in the workspace: `+
		"use another name")
	_, err = Parse("kcp.yaml", fmt.Appendf(nil, text, "more", "others"))
	require.NoError(t, err)
}

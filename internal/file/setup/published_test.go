package setup

import (
	"fmt"
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

// A setup that is not in a file cannot refer to files.
func TestFilesCannotBeRead(t *testing.T) {
	_, err := Parse("revision 1", []byte(minimal+`spec: {agents: [{name: a, workspace: root, publishedResources: [{file: a.yaml}]}]}`+"\n"))
	require.EqualError(t, err, "revision 1:5:72: spec.agents[0].publishedResources[0].file: files cannot be read here: use name and spec")
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
    publishedResources: [{name: two, spec: {resource: {apiGroup: example.com, kind: Widget}, naming: {name: "{{ .ClusterName }}-{{ .Object.metadata.namespace }}"}}}]
`
	f, err := Parse("kcp.yaml", fmt.Appendf(nil, text, "root:team"))
	require.NoError(t, err)
	require.Equal(t, []string{"kcp.yaml:13:33: spec.agents[1].publishedResources[0].name: agent one publishes Widget.example.com to root:team too: " +
		"objects of both APIs with the same name and namespace would have one copy"}, f.Notes())
	f, err = Parse("kcp.yaml", fmt.Appendf(nil, text, "root:other"))
	require.NoError(t, err)
	require.Empty(t, f.Notes())
}

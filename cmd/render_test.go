package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/render"
)

func TestDocumentsOfWorkspaces(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": "APIBinding", "metadata": map[string]any{"name": "a:b"}}}
	for name, tc := range map[string]struct {
		object render.Object
		want   document
	}{
		"of a cluster": {
			render.Object{Cluster: "eu", Component: "shard/alpha", Unstructured: o},
			document{
				cluster: "eu", path: "eu/shard-alpha/apibinding-a.b.yaml",
				text: "# shard/alpha\nkind: APIBinding\nmetadata:\n  name: a:b\n",
			},
		},
		"of a workspace": {
			render.Object{Workspace: "root:team-a", Component: "workspace/root:team-a", Unstructured: o},
			document{
				workspace: "root:team-a",
				text:      "# workspace/root:team-a, in workspace root:team-a\nkind: APIBinding\nmetadata:\n  name: a:b\n",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := (&renderOptions{}).document(tc.object)
			require.NoError(t, err)
			require.Equal(t, tc.want, d)
		})
	}
}

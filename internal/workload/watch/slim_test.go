package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestSlimKeepsACopy(t *testing.T) {
	spec := map[string]any{"replicas": int64(2)}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "web", "managedFields": []any{map[string]any{"manager": "kubectl"}}}, "spec": spec,
	}}
	slim(u)
	want := map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"replicas": int64(2)}}
	require.Equal(t, want, u.Object)
	spec["replicas"] = int64(3)
	require.Equal(t, want, u.Object, "it has what was decoded")
}

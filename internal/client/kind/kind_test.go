package kind

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOf(t *testing.T) {
	for _, k := range Applied {
		got, err := Of(k.GroupVersionKind)
		require.NoError(t, err)
		require.Equal(t, k, got)
	}
	_, err := Of(schema.GroupVersionKind{Version: "v1", Kind: "Node"})
	require.ErrorContains(t, err, "kind /v1, Kind=Node")
	require.Equal(t, Namespace, Applied[0], "all others live in it")
	require.Equal(t, "deployments", Deployment.GVR().Resource)
}

package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Each image is listed once, also those of other images of a component and of containers that a podTemplate adds.
func TestImages(t *testing.T) {
	top := topologytest.Build(t, `spec:
  version: v0.32.3
  image: {repository: mirror.example.com/kcp}
  etcd: {managed: {image: "mirror.example.com/etcd:v3.6.16"}}
  shards:
  - {name: alpha}
  - name: beta
    podTemplate: {spec: {initContainers: [{name: wait, image: "mirror.example.com/wait:1"}]}}
`)
	images, err := render.Images(top)
	require.NoError(t, err)
	require.Equal(t, []string{"mirror.example.com/etcd:v3.6.16", "mirror.example.com/kcp:v0.32.3", "mirror.example.com/wait:1"}, images)
}

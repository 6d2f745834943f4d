package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The podTemplate with which docs/operations.md runs kcp on OpenShift: null removes the user and the groups that kcpctl
// sets, so that the cluster chooses them, and leaves the rest.
func TestPodsWithoutAUser(t *testing.T) {
	top, _, objects := rendered(t, `spec:
  defaults: {podTemplate: &anyUser {spec: {securityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}}}}
  etcd: {managed: {podTemplate: *anyUser}}
  cacheServer: {}
  shards: [{name: alpha, podTemplate: {spec: {priorityClassName: kcp}}}]
  virtualWorkspaces: [{name: alpha, shard: alpha}]
  agents:
  - {name: widgets, workspace: "root:widgets", podTemplate: *anyUser,
     publishedResources: [{name: widgets, spec: {resource: {kind: Widget, apiGroup: example.com, versions: [v1]}}}]}
  workloads: {podTemplate: *anyUser}
`)
	seen := 0
	for _, o := range objects {
		context, ok, err := unstructured.NestedMap(o.Object, "spec", "template", "spec", "securityContext")
		require.NoError(t, err)
		if !ok {
			continue
		}
		seen++
		require.Equal(t, map[string]any{
			"runAsNonRoot": true, "fsGroupChangePolicy": "OnRootMismatch",
			"seccompProfile": map[string]any{"type": "RuntimeDefault"},
		}, context, o.Component)
	}
	require.Equal(t, len(top.Running()), seen)
}

package render_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/stretchr/testify/require"
)

// A template of pods with a spec keeps the Secrets for pulling images: kcp-operator loses them.
func TestTemplatesKeepPullSecrets(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  image: {pullSecrets: [pull]}
  cacheServer: {}
  virtualWorkspaces: [{name: vw}]
  defaults: {podTemplate: {metadata: {annotations: {team: a}}, spec: {nodeSelector: {pool: kcp}}}}
`)
	pods := 0
	for _, o := range objects {
		pod, ok := podOf(t, o)
		if !ok || o.GetKind() == "StatefulSet" { // an etcd has its own image
			continue
		}
		pods++
		require.Equal(t, map[string]string{"pool": "kcp"}, pod.Spec.NodeSelector, o.GetName())
		require.Equal(t, []corev1.LocalObjectReference{{Name: "pull"}}, pod.Spec.ImagePullSecrets, o.GetName())
	}
	require.Equal(t, 4, pods)
}

// An etcd without TLS gets no flags for certificates: kcp's chart always sets them.
func TestEtcdWithoutTLS(t *testing.T) {
	_, _, objects := rendered(t, `spec: {etcd: {external: {endpoints: ["http://etcd.example.com:2379"]}}}`)
	args := strings.Join(argsOf(t, objects, "demo-root"), " ")
	require.Contains(t, args, "--etcd-servers=http://etcd.example.com:2379")
	require.NotContains(t, args, "--etcd-cafile")
	require.NotContains(t, args, "--etcd-certfile")
}

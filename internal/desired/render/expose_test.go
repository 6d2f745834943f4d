package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// The Services and routes of a setup with every type of exposure.
func TestExposed(t *testing.T) {
	top, state, objects := rendered(t, `spec:
  external: {hostname: kcp.example.com}
  rootShard: {url: "https://root.example.com", expose: {type: Ingress, className: nginx}}
  shards:
  - {name: alpha, url: "https://192.0.2.1:31444", expose: NodePort, service: {ports: [{port: 6443, nodePort: 31555}]}}
  - {name: beta, url: "https://beta.example.com:7443", expose: {type: LoadBalancer, annotations: {example.com/internal: "true"}}}
  - name: gamma
    url: https://gamma.example.com
    virtualWorkspaceURL: https://gamma-vw.example.com
    expose: {type: TLSRoute, annotations: {example.com/a: b}, gateway: {name: public, namespace: gateways, sectionName: tls}}
  - {name: delta, url: "https://delta.example.com", expose: {type: TLSRoute, gateway: {name: public}}}
  - name: epsilon
    url: https://epsilon.example.com:6443
    expose: {type: LoadBalancer, internal: true, annotations: {service.beta.kubernetes.io/azure-load-balancer-internal: "false", example.com/a: b}}
  frontProxies:
  - {name: main, expose: Route}
  - name: side
    external: {hostname: side.example.com}
    expose: {type: Ingress, annotations: {ingress.cilium.io/tls-passthrough: "true", example.com/a: b}}
`)
	require.NoError(t, render.Prove(top, state, now))
	kinds := []string{"Service", "Ingress", "TLSRoute", "Route"}
	var got strings.Builder
	for _, o := range objects {
		if !slices.Contains(kinds, o.GetKind()) || strings.Contains(o.GetName(), "etcd") {
			continue
		}
		o.SetLabels(nil)
		text, err := o.YAML()
		require.NoError(t, err)
		got.WriteString("---\n" + string(text))
	}
	testutil.Golden(t, "exposed.yaml", []byte(got.String()))
}

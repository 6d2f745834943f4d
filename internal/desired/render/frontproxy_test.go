package render_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// certificate is a valid one in PEM format, without a key.
const certificate = `-----BEGIN CERTIFICATE-----
MIIBfTCCASOgAwIBAgIUF2ZC6cIi9i7uHaEQYF7U1CiTXfcwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJcHVibGljLWNhMB4XDTI2MTEyMjE2MjMyM1oXDTQ2MTExNzE2
MjMyM1owFDESMBAGA1UEAwwJcHVibGljLWNhMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEMcb5hpcsB14uYogcHx5zr33c0gvYkHfup4y53UqARQSX8j/OMRkJshV8
T5BBZY6QxdtYy8tx85F7e4p89YNqQ6NTMFEwHQYDVR0OBBYEFKV1tbr7dqkCQGbh
rwuPeFD5B3xvMB8GA1UdIwQYMBaAFKV1tbr7dqkCQGbhrwuPeFD5B3xvMA8GA1Ud
EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgJjo4oyrzTMORFCWXXtCGZeqc
YVFt42oIPZInHnUP7B4CIQC4N5QkuQYdxDQd8Hq4erU1mFoBzl0xuH10uZJcKAlj
ww==
-----END CERTIFICATE-----
`

// dataOf returns the entry of a Secret as text.
func dataOf(t *testing.T, objects []render.Object, name, key string) string {
	t.Helper()
	i := slices.IndexFunc(objects, func(o render.Object) bool { return o.GetName() == name && o.GetKind() == "Secret" })
	require.GreaterOrEqual(t, i, 0, name)
	values, _ := objects[i].Object["data"].(map[string]any)
	text, _ := values[key].(string)
	raw, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	return string(raw)
}

func indent(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n        ")
}

// The front-proxy public has a certificate of a private authority, and open one that the system trusts.
var serving = `spec:
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  cacheServer: {cluster: eu, url: "https://cache.example.com"}
  rootShard: {cluster: eu, url: "https://root.example.com"}
  shards:
  - {name: alpha, cluster: us, url: "https://alpha.example.com"}
  - {name: beta, cluster: us, url: "https://beta.example.com", frontProxy: open}
  frontProxies:
  - name: public
    cluster: eu
    external: {hostname: kcp.example.com}
    serving:
      secret: public-cert
      ca: |
        ` + indent(certificate) + `
  - {name: open, cluster: eu, external: {hostname: open.example.com, port: 443}, serving: {secret: acme-cert}}
  kubeconfigs:
  - {name: admin}
`

// kubeconfigOf returns what a kubeconfig verifies its server with, by URL.
func kubeconfigOf(t *testing.T, text string) map[string]string {
	t.Helper()
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				File   string `json:"certificate-authority"`
				Data   []byte `json:"certificate-authority-data"`
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &config))
	out := map[string]string{}
	for _, c := range config.Clusters {
		server, _, _ := strings.Cut(c.Cluster.Server, "/clusters/")
		out[server] = c.Cluster.File + string(c.Cluster.Data)
	}
	return out
}

// A certificate of the user's own is served for the external hostname only. Clients of this name trust its authority,
// everything else keeps that of the setup.
func TestServing(t *testing.T) {
	top, state, objects := rendered(t, serving)
	require.NoError(t, render.Prove(top, state, now))
	args := argsOf(t, objects, "demo-front-proxy-public")
	require.Contains(t, args, "--tls-cert-file=/etc/kcp/pki/server/tls.crt")
	require.Contains(t, args,
		"--tls-sni-cert-key=/etc/kcp/pki/external/tls.crt,/etc/kcp/pki/external/tls.key:kcp.example.com")

	admin := func(component string) map[string]string {
		return kubeconfigOf(t, dataOf(t, objects, "demo-"+component+"-kubeconfigs", "external-logical-cluster-admin"))
	}
	require.Equal(t, map[string]string{"https://demo-front-proxy-public.kcp.svc.cluster.local:6443": "/etc/kcp/ca/server.crt"},
		admin("root"), "within the cluster, by the name of the Service")
	union := string(state.CAs[topology.ServerCA].Trusted()) + certificate
	require.Equal(t, map[string]string{"https://kcp.example.com:6443": union}, admin("shard-alpha"))
	require.Equal(t, map[string]string{"https://open.example.com:443": ""}, admin("shard-beta"), "the authorities of the image")
	require.Equal(t, map[string]string{"https://kcp.example.com:6443": union},
		kubeconfigOf(t, dataOf(t, objects, "demo-kubeconfig-admin", "kubeconfig")), "it leads to the URLs of virtual workspaces too")
}

func TestPathMappings(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  frontProxies:
  - name: main
    pathMappings:
    - {path: /services/ours, backend: "https://ours.example.com/base"}
    - path: /services/theirs/
      backend: https://theirs.example.com
      caFrom: {configMap: theirs-ca}
      clientSecret: theirs-client
      userHeader: X-User
    - path: /services/inline/
      backend: https://inline.example.com
      ca: |
        `+indent(certificate)+`
`)
	i := slices.IndexFunc(objects, func(o render.Object) bool { return o.GetName() == "demo-front-proxy-main-config" })
	data, _ := objects[i].Object["data"].(map[string]any)
	require.Equal(t, certificate, data["path-mapping-2-ca.crt"])
	text, _ := data["path-mapping.yaml"].(string)
	pod, _ := podOf(t, objects[slices.IndexFunc(objects, func(o render.Object) bool {
		return o.GetName() == "demo-front-proxy-main" && o.GetKind() == "Deployment"
	})])
	for _, s := range pod.Spec.Volumes[0].Projected.Sources {
		if s.Secret != nil && s.Secret.Name == "theirs-client" || s.ConfigMap != nil && s.ConfigMap.Name == "theirs-ca" {
			more, err := yaml.Marshal(s)
			require.NoError(t, err)
			text += "---\n" + string(more)
		}
	}
	testutil.Golden(t, "path-mappings.yaml", []byte(text))
}

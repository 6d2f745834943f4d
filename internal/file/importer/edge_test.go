package importer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// imported imports a root shard and a front-proxy with these fields of their specs.
func imported(t *testing.T, shard, proxy string, more ...string) (*v1alpha1.Spec, []Finding) {
	t.Helper()
	text := rootShard + shard + `---
apiVersion: operator.kcp.io/v1alpha1
kind: FrontProxy
metadata: {name: main}
spec:
  rootShard: {ref: {name: root}}
` + proxy + strings.Join(more, "")
	res, err := Import([]Source{{Name: "in.yaml", Data: []byte(text)}}, Options{})
	require.NoError(t, err, text)
	return &res.File.Setup.Spec, res.Findings
}

const (
	loginA = "  auth: {oidc: {issuerURL: https://a.example.com, clientID: kcp, caFileRef: {name: login-ca}}, tokenAuthFile: {name: tokens}}\n"
	loginB = "  auth: {oidc: {issuerURL: https://b.example.com, clientID: kcp}}\n"
)

// The tokens of shards are those of the setup if front-proxies authenticate the same ones, else flags: nothing else is
// accepted anywhere, and nothing less.
func TestAuthenticationOfShards(t *testing.T) {
	for name, tc := range map[string]struct {
		shard, proxy string
		mode         v1alpha1.AuthenticationMode
		issuer       string // of the front-proxy itself
		flags        bool
	}{
		"the same":         {loginA, loginA, v1alpha1.AuthenticationModeEverywhere, "", false},
		"others":           {loginA, loginB, v1alpha1.AuthenticationModeEdge, "https://b.example.com", true},
		"shards only":      {loginA, "", v1alpha1.AuthenticationModeEdge, "", true},
		"front-proxy only": {"", loginA, v1alpha1.AuthenticationModeEdge, "https://a.example.com", false},
	} {
		t.Run(name, func(t *testing.T) {
			spec, _ := imported(t, tc.shard, tc.proxy)
			require.Equal(t, tc.mode, spec.Authentication.Mode)
			require.Equal(t, tc.mode == v1alpha1.AuthenticationModeEverywhere, spec.Authentication.OIDC != nil)
			got := ""
			if o := spec.FrontProxies[0].Authentication.OIDC; o != nil {
				got = o.IssuerURL
			}
			require.Equal(t, tc.issuer, got)
			args := strings.Join(spec.RootShard.ExtraArgs, " ")
			require.Equal(t, tc.flags, strings.Contains(args, "--oidc-issuer-url=https://a.example.com"), args)
			require.Equal(t, tc.flags, strings.Contains(args, "--token-auth-file=/etc/imported/token-auth-file/token.csv"), args)
		})
	}
}

// kcp ignores the webhook of a front-proxy that accepts no other tokens, and so does a setup.
func TestWebhookThatKcpIgnores(t *testing.T) {
	const webhook = "  auth: {webhook: {configSecretName: authn, version: v1}"
	for more, ignored := range map[string]bool{
		"}\n": true, ", serviceAccount: {enabled: false}}\n": true, ", serviceAccount: {enabled: true}}\n": false,
		", tokenAuthFile: {secretName: tokens}}\n": false,
	} {
		spec, findings := imported(t, "", webhook+more)
		require.Equal(t, ignored, spec.FrontProxies[0].Authentication.Webhook == nil, more)
		require.Equal(t, ignored, strings.Contains(report(findings), "spec.auth.webhook.configSecretName, "+
			"spec.auth.webhook.version: kcp ignores the webhook"), more)
	}
}

// Files of path mappings are traced to the Secrets and ConfigMaps that they come from.
func TestPathMappingsOfFiles(t *testing.T) {
	spec, findings := imported(t, "", `  extraVolumes:
  - {name: custom, secret: {secretName: custom-client, items: [{key: tls.crt, path: crt}, {key: tls.key, path: key}]}}
  - {name: ca, configMap: {name: custom-ca}}
  extraVolumeMounts:
  - {name: custom, mountPath: /etc/custom}
  - {name: ca, mountPath: /etc/ca.crt, subPath: bundle.crt}
  additionalPathMappings:
  - {path: /services/a, backend: "https://a:6443", backend_server_ca: /etc/ca.crt, proxy_client_cert: /etc/custom/crt, proxy_client_key: /etc/custom/key}
  - {path: /services/b, backend: "https://b:6443", backend_server_ca: /etc/other/ca.crt, proxy_client_cert: /etc/custom/crt, proxy_client_key: /etc/custom/key}
  - {path: /services/c, backend: "https://c:6443", backend_server_ca: /etc/kcp/tls/ca/tls.crt, proxy_client_cert: /etc/custom/key, proxy_client_key: /etc/custom/crt}
`)
	require.Equal(t, []v1alpha1.PathMapping{{
		Path: "/services/a", Backend: "https://a:6443", ClientSecret: "custom-client",
		CAFrom: &v1alpha1.KeyReference{ConfigMap: "custom-ca", Key: "bundle.crt"},
	}}, withoutHeaders(spec.FrontProxies[0].PathMappings))
	text := report(findings)
	require.Contains(t, text, "spec.additionalPathMappings[1]: the file /etc/other/ca.crt is in no Secret or ConfigMap that extraVolumes mounts")
	require.Contains(t, text, "spec.additionalPathMappings[2]: the files /etc/custom/key and /etc/custom/crt are not tls.crt and tls.key of a Secret")
}

// With headers of its own, a mapping is not for a server that trusts front-proxies: clients could send it X-Remote-User.
func TestPathMappingsWithHeadersOfTheirOwn(t *testing.T) {
	const shards = `backend_server_ca: /etc/kcp/tls/ca/tls.crt, proxy_client_cert: /etc/kcp-front-proxy/requestheader-client/tls.crt, ` +
		`proxy_client_key: /etc/kcp-front-proxy/requestheader-client/tls.key`
	spec, findings := imported(t, "", `  extraVolumes: [{name: custom, secret: {secretName: custom-client}}]
  extraVolumeMounts: [{name: custom, mountPath: /etc/custom}]
  additionalPathMappings:
  - {path: /services/a, backend: "https://a:6443", `+shards+`, user_header: X-Team-User, group_header: X-Team-Group}
  - {path: /services/b, backend: "https://b:6443", `+shards+`, extra_header_prefix: X-Team-}
  - {path: /services/c, backend: "https://c:6443", `+shards+`, user_header: x-remote-user}
  - {path: /services/d, backend: "https://d:6443", backend_server_ca: /etc/kcp/tls/ca/tls.crt, proxy_client_cert: /etc/custom/tls.crt,
     proxy_client_key: /etc/custom/tls.key, user_header: X-Team-User}
`)
	var got []v1alpha1.PathMapping
	for _, m := range spec.FrontProxies[0].PathMappings {
		got = append(got, v1alpha1.PathMapping{Path: m.Path, UserHeader: m.UserHeader, ClientSecret: m.ClientSecret})
	}
	require.Equal(t, []v1alpha1.PathMapping{
		{Path: "/services/c", UserHeader: "x-remote-user"},
		{Path: "/services/d", UserHeader: "X-Team-User", ClientSecret: "custom-client"},
	}, got)
	for i, header := range []string{"X-Team-User", "X-Team-"} {
		require.Contains(t, report(findings), fmt.Sprintf("not mapped: in.yaml:%d:5: FrontProxy main: spec.additionalPathMappings[%d]: "+
			"a front-proxy removes only the headers of the mapping, so with %s clients", 16+i, i, header))
	}
}

// A mount is reviewed where it hides files of kcpctl, or they hide it.
func TestMountsAmongOurFiles(t *testing.T) {
	for path, reviewed := range map[string]bool{
		"/etc/kcp": true, "/etc/kcp/encryption": true, "/etc/kcp-front-proxy/combined-client-ca": false, "/etc/kcpctl": false,
	} {
		_, findings := imported(t, "", "  extraVolumes: [{name: v, secret: {secretName: own}}]\n"+
			"  extraVolumeMounts: [{name: v, mountPath: "+path+"}]\n")
		require.Equal(t, reviewed, strings.Contains(report(findings), "it refers to a path below /etc/kcp"), path)
	}
}

// withoutHeaders removes the defaults of headers.
func withoutHeaders(all []v1alpha1.PathMapping) []v1alpha1.PathMapping {
	for i := range all {
		all[i].UserHeader, all[i].GroupHeader, all[i].ExtraHeaderPrefix = "", "", ""
	}
	return all
}

// A front-proxy keeps the certificate of a public issuer, and not one of the installation's own authority.
func TestIssuersOfFrontProxies(t *testing.T) {
	const issuer = "---\napiVersion: cert-manager.io/v1\nkind: Issuer\nmetadata: {name: edge}\nspec: "
	const proxy = "  certificateTemplates: {server: {spec: {issuerRef: {kind: Issuer, name: edge}}}}\n"
	for name, tc := range map[string]struct {
		more  []string
		serve bool
	}{
		"acme":             {[]string{issuer + "{acme: {server: https://acme.example.com}}\n"}, true},
		"not in the input": {nil, true},
		"a CA":             {[]string{issuer + "{ca: {secretName: ca}}\n"}, false},
		"selfSigned":       {[]string{issuer + "{selfSigned: {}}\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			spec, findings := imported(t, "", proxy, tc.more...)
			require.Contains(t, report(findings), "spec.certificateTemplates.server.spec.issuerRef")
			if !tc.serve {
				require.Nil(t, spec.FrontProxies[0].Serving)
				return
			}
			require.Equal(t, &v1alpha1.Serving{Secret: "main-serving"}, spec.FrontProxies[0].Serving)
			require.Contains(t, report(findings), "secretName: main-serving")
		})
	}
	res, err := Import([]Source{{Name: "values.yaml", Data: []byte("externalHostname: kcp.example.com\nkcpFrontProxy: {certificateIssuer: {name: letsencrypt, kind: ClusterIssuer}}\n")}}, Options{})
	require.NoError(t, err)
	require.Equal(t, "kcp-serving", res.File.Setup.Spec.FrontProxies[0].Serving.Secret)
}

package render_test

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
)

// authentication has every way to authenticate, at the edge and on shards.
const authentication = `spec:
  authentication:
    mode: Everywhere
    anonymous: false
    oidc:
      issuerURL: https://login.example.com
      clientID: kcp
      groupsClaim: groups
      groupsPrefix: "oidc:"
      requiredClaims: {hd: example.com}
    webhook: {secret: webhook, cacheTTL: 30s}
    tokenFile: {secret: tokens}
    dropGroups: ["team:*"]
  cacheServer: {}
  shards: [{name: alpha, frontProxy: inner}]
  virtualWorkspaces: [{name: extra}]
  frontProxies:
  - {name: main}
  - name: flags
    authentication:
      clientCertificates: false
      oidc: {issuerURL: "https://other.example.com", clientID: kcp, usernameClaim: email, caFrom: {configMap: other-ca}}
      dropGroups: ['with,comma "and quotes"']
  - name: several
    authentication:
      config:
        jwt:
        - issuer: {url: "https://one.example.com", audiences: [kcp]}
          claimMappings: {username: {claim: sub, prefix: ""}, groups: {expression: claims.roles}}
        - issuer: {url: "https://two.example.com", audiences: [kcp, cli], audienceMatchPolicy: MatchAny}
          claimMappings: {username: {claim: sub, prefix: "two:"}}
          userValidationRules: [{expression: "!user.username.startsWith('system:')", message: reserved}]
  - {name: inner, authentication: {passOnGroups: ["oidc:*"]}}
  - {name: open, authentication: {none: true}}
  kubeconfigs:
  - {name: admin, groups: ["system:kcp:admin"]}
  - {name: ops, target: {frontProxy: inner}, groups: [ops], clusterRoles: [view]}
`

// The golden is the review of how everything authenticates: each server with its flags, its files and where they come
// from.
func TestAuthentication(t *testing.T) {
	_, _, objects := rendered(t, authentication)
	var b strings.Builder
	for _, o := range objects {
		pod, ok := podOf(t, o)
		if !ok || o.Component.Kind() == topology.Etcd {
			continue
		}
		b.WriteString(string(o.Component) + "\n")
		for _, arg := range pod.Spec.Containers[0].Args {
			name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			for _, about := range []string{"oidc", "authentication", "anonymous", "client-ca-file", "token", "service-account"} {
				if strings.Contains(name, about) {
					b.WriteString("  " + arg + "\n")
					break
				}
			}
		}
		for _, s := range pod.Spec.Volumes[0].Projected.Sources {
			from, items := "", []corev1.KeyToPath(nil)
			if s.Secret != nil {
				from, items = "Secret "+s.Secret.Name, s.Secret.Items
			} else {
				from, items = "ConfigMap "+s.ConfigMap.Name, s.ConfigMap.Items
			}
			for _, i := range items {
				if strings.HasPrefix(i.Path, "config/") || strings.HasPrefix(i.Path, "service-account/") {
					b.WriteString("  " + i.Path + " from " + from + ", key " + i.Key + "\n")
				}
			}
		}
	}
	for _, o := range objects {
		if o.GetKind() == "ConfigMap" {
			if text, ok := o.Object["data"].(map[string]any)["authentication.yaml"].(string); ok {
				b.WriteString("\n# " + o.GetName() + "\n" + text)
			}
		}
	}
	testutil.Golden(t, "authentication.txt", []byte(b.String()))
}

// The private key of service accounts is mounted by shards only. A front-proxy that accepts their tokens gets the
// public keys.
func TestFrontProxiesHaveNoPrivateKeyOfServiceAccounts(t *testing.T) {
	top, state, objects := rendered(t, authentication)
	public := 0
	for _, o := range objects {
		if top.Component(o.Component).Kind != topology.FrontProxy {
			continue
		}
		text, err := o.YAML()
		require.NoError(t, err)
		require.NotContains(t, string(text), "sa.key", o.GetName())
		require.NotContains(t, string(text), top.Object(topology.ServiceAccountPart), o.GetName())
		if data, ok := o.Object["data"].(map[string]any); ok && data["sa.pub"] != nil {
			require.Equal(t, string(state.ServiceAccount.Public), data["sa.pub"])
			public++
		}
	}
	require.Equal(t, 4, public, "all front-proxies except open")
}

// kcp-front-proxy reads groups as a line of CSV. Its own list of dropped groups is part of the flag, which would
// replace it.
func TestGroupsOfFrontProxies(t *testing.T) {
	_, _, objects := rendered(t, authentication)
	read := func(proxy, name string) []string {
		args := argsOf(t, objects, proxy)
		i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--"+name+"=") })
		require.GreaterOrEqual(t, i, 0, proxy)
		values, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(args[i], "--"+name+"="))).Read()
		require.NoError(t, err)
		return values
	}
	for _, role := range []string{"view", topology.AccessRole} {
		i := slices.IndexFunc(objects, func(o render.Object) bool { return o.GetName() == "demo:kubeconfig:ops:"+role })
		require.GreaterOrEqual(t, i, 0, "the role is an object like all others, so that it is compared, recorded and deleted")
		require.Equal(t, "root", objects[i].Workspace)
		require.Equal(t, "kcpctl:demo:kubeconfig:ops", objects[i].Object["subjects"].([]any)[0].(map[string]any)["name"])
	}
	require.Equal(t, append(slices.Clone(topology.AlwaysDropped), "team:*"), read("demo-front-proxy-main", "authentication-drop-groups"))
	require.Equal(t, append(slices.Clone(topology.AlwaysDropped), "team:*", `with,comma "and quotes"`),
		read("demo-front-proxy-flags", "authentication-drop-groups"))
	require.Equal(t, []string{
		"kcpctl:demo:kubeconfig:ops", "ops", "system:authenticated", "system:kcp:admin", "system:kcp:external-logical-cluster-admin",
		"system:serviceaccounts", "system:serviceaccounts:*", "oidc:*",
	}, read("demo-front-proxy-inner", "authentication-pass-on-groups"))
}

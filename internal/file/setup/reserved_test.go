package setup

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What gives users more than the file seems to is a note of every command.
func TestExposures(t *testing.T) {
	f := read(t, `apiVersion: kcpctl.dev/v1alpha1
kind: Setup
metadata: {name: demo}
spec:
  authentication:
    oidc: {issuerURL: "https://login.example.com", clientID: kcp, usernameClaim: preferred_username, usernamePrefix: "-", groupsClaim: groups}
    tokenFile: {secret: tokens}
  frontProxies:
  - name: main
    authentication: {webhook: {secret: hook}}
  kubeconfigs: [{name: a, user: "kcpctl:agent:demo:widgets"}]
  workspaces:
  - name: teams
    access: [{clusterRole: cluster-admin, groups: ["system:authenticated"]}]
    workspaces: [{name: a, access: [{name: x, groups: ["system:unauthenticated"]}, {clusterRole: view, groups: ["system:authenticated"]}]}]
`)
	var got []string
	for _, note := range f.Notes() {
		if strings.HasPrefix(note, "spec.") {
			field, _, _ := strings.Cut(note, ": ")
			got = append(got, field)
		}
	}
	require.Equal(t, []string{
		"spec.authentication.oidc.groupsPrefix", "spec.authentication.oidc.usernamePrefix", "spec.authentication.tokenFile",
		"spec.frontProxies[0].authentication.webhook", "spec.kubeconfigs[0].user",
		"spec.workspaces[0].access[0]", "spec.workspaces[0].workspaces[0].access[0]",
	}, got)
	require.Empty(t, read(t, commented).Notes())
}

// Shards that accept requests without credentials from outside of their clusters have a note.
func TestAnonymousRequests(t *testing.T) {
	const closed = "  authentication: {anonymous: false}\n"
	for name, c := range map[string]struct{ spec, at, shards string }{
		"a Service of the cluster":     {"  shards: [{name: alpha}]\n", "", ""},
		"a front-proxy":                {"  external: {hostname: kcp.example.com}\n  frontProxies: [{name: main, expose: LoadBalancer}]\n", "", ""},
		"an address inside":            {"  rootShard: {url: \"https://demo-root.kcp.svc.cluster.local:6443\"}\n", "", ""},
		"an address":                   {"  rootShard: {url: \"https://root.example.com\"}\n", "spec.rootShard.url", "root-shard"},
		"an assigned address":          {"  rootShard: {url: auto, expose: NodePort}\n", "spec.rootShard.url", "root-shard"},
		"a Service":                    {"  shards: [{name: alpha, service: {type: LoadBalancer}}]\n", "spec.shards[0].service.type", "shard/alpha"},
		"external addresses":           {"  shards: [{name: alpha, service: {externalIPs: [203.0.113.7]}}]\n", "spec.shards[0].service.externalIPs", "shard/alpha"},
		"the Services of all":          {"  defaults: {service: {type: NodePort}}\n  shards: [{name: alpha}, {name: beta}]\n", "spec.defaults.service.type", "root-shard, shard/alpha, shard/beta"},
		"a Service unlike that of all": {"  defaults: {service: {type: NodePort}}\n  rootShard: {service: {type: ClusterIP}}\n", "", ""},
		"refused":                      {closed + "  rootShard: {url: \"https://root.example.com\", expose: LoadBalancer}\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			notes := read(t, "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\nspec:\n"+c.spec).Notes()
			if c.at == "" {
				require.Empty(t, notes)
				return
			}
			require.Equal(t, []string{c.at + ": clients from outside of the cluster reach " + c.shards + " without credentials, as " +
				"system:anonymous: set spec.authentication.anonymous to false, and only /healthz, /livez, /readyz need none"}, notes)
		})
	}
}

// NetworkPolicies that refuse the Prometheus of the setup have a note.
func TestUnreadMetrics(t *testing.T) {
	const header = "apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata: {name: demo}\nspec:\n"
	notes := read(t, header+"  monitoring: {}\n  networkPolicies: {clients: {team: a}}\n").Notes()
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], ":6:3: spec.networkPolicies.metricsClients: without it, ")
	require.Contains(t, notes[0], "set it to labels of the namespace of Prometheus")
	for _, spec := range []string{
		"  monitoring: {}\n", "  networkPolicies: {}\n",
		"  monitoring: {}\n  networkPolicies: {metricsClients: {team: a}}\n",
	} {
		require.Empty(t, read(t, header+spec).Notes(), spec)
	}
}

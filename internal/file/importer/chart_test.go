package importer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
)

// valuesOf imports values of the chart with a hostname and these.
func valuesOf(t *testing.T, values string) (*v1alpha1.Spec, string) {
	t.Helper()
	r, err := Import([]Source{{Name: "values.yaml", Data: []byte("externalHostname: kcp.example.com\n" + values)}},
		Options{Namespace: "kcp"})
	require.NoError(t, err)
	return &r.File.Setup.Spec, report(r.Findings)
}

// kcp of the chart uses the etcd that the values name, also if the chart has one, which is the default.
func TestEtcdThatTheValuesName(t *testing.T) {
	for name, values := range map[string]string{
		"a value":                "kcp: {etcd: {serverAddress: 'https://a:2379,https://b:2379'}}",
		"beside that of a chart": "etcd: {enabled: true, volumeSize: 9Gi}\nkcp: {etcd: {serverAddress: 'https://a:2379,https://b:2379'}}",
		"a flag":                 "kcp: {extraFlags: ['--etcd-servers=https://a:2379,https://b:2379']}",
		"no etcd of the chart":   "etcd: {enabled: false}\nkcp: {etcd: {serverAddress: 'https://a:2379,https://b:2379'}}",
	} {
		t.Run(name, func(t *testing.T) {
			spec, findings := valuesOf(t, values)
			require.Nil(t, spec.RootShard.Etcd.Managed)
			etcd := spec.RootShard.Etcd.External
			require.Equal(t, []string{"https://a:2379", "https://b:2379"}, etcd.Endpoints)
			require.Equal(t, "/registry", etcd.Prefix)
			require.Equal(t, "kcp-etcd-client-cert", etcd.TLSSecret)
			require.NotContains(t, findings, "new, empty etcd")
			if name == "beside that of a chart" {
				require.Contains(t, findings, "etcd.volumeSize: etcd.enabled is off, or kcp.etcd.serverAddress names another")
			}
		})
	}
}

// The advice on how to keep the data has the prefix of the data.
func TestPrefixOfTheChartsEtcd(t *testing.T) {
	_, findings := valuesOf(t, "kcp: {extraFlags: [--etcd-prefix=/kcp]}")
	require.Contains(t, findings, "prefix /kcp and its client certificate")
}

// The setup has the defaults of the chart that differ from the defaults of kcpctl.
func TestDefaultsOfTheChart(t *testing.T) {
	spec, _ := valuesOf(t, "")
	require.False(t, *spec.HomeWorkspaces.Enabled)
	require.Equal(t, "json", spec.RootShard.LogFormat)
	require.Equal(t, "json", spec.FrontProxies[0].LogFormat)
	spec, _ = valuesOf(t, "kcp: {extraFlags: [--logging-format=text, --enable-home-workspaces=true]}")
	require.True(t, *spec.HomeWorkspaces.Enabled)
	require.Equal(t, "text", spec.RootShard.LogFormat)
}

// Of the two security contexts of pods, the deprecated one takes precedence, field by field.
func TestSecurityContextsOfTheChart(t *testing.T) {
	want := map[string]any{"fsGroup": int64(1), "runAsUser": int64(5)}
	for _, values := range []string{
		"kcp: {securityContext: {fsGroup: 1}, podSecurityContext: {fsGroup: 2, runAsUser: 5}}",
		"kcp: {podSecurityContext: {fsGroup: 2, runAsUser: 5}, securityContext: {fsGroup: 1}}",
	} {
		spec, _ := valuesOf(t, values)
		require.Equal(t, want, spec.RootShard.PodTemplate["spec"].(map[string]any)["securityContext"])
	}
}

// A finding about a field that the input does not have is about its object.
func TestFindingsWithoutAField(t *testing.T) {
	_, findings := valuesOf(t, "oidc: {enabled: true, clientId: kcp}\nauthentication: {configMapRef: {name: login}}")
	require.Contains(t, findings, "authentication.configMapRef.name takes precedence over oidc")
}

// The node port belongs to the port of our Service, which is another one without an address for clients.
func TestNodePortOfTheChart(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		port   int64
	}{
		"without an address": {"kcpFrontProxy: {service: {type: NodePort, nodePort: 30443}}\n", 6443},
		"with an address":    {"externalHostname: kcp.example.com\nkcpFrontProxy: {service: {type: NodePort, nodePort: 30443}}\n", 443},
		"behind an Ingress": {"externalHostname: kcp.example.com\nkcpFrontProxy: {service: {type: NodePort, nodePort: 30443}, " +
			"ingress: {enabled: true}}\n", 6443},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Import([]Source{{Name: "values.yaml", Data: []byte(tc.values)}}, Options{Namespace: "kcp"})
			require.NoError(t, err)
			require.Equal(t, []any{map[string]any{"port": tc.port, "nodePort": int64(30443)}},
				r.File.Setup.Spec.FrontProxies[0].Service["ports"])
			require.Equal(t, tc.port == 6443 && name != "behind an Ingress",
				strings.Contains(report(r.Findings), "externalHostname is not set"))
		})
	}
}

package render_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// An IPv6 address stands in brackets in URLs, and without them in certificates and flags of hosts.
func TestIPv6Addresses(t *testing.T) {
	top, state, objects := rendered(t, `spec:
  version: v0.28.0
  external: {hostname: "2001:db8::1", port: 6443}
  rootShard: {url: "https://[2001:db8::2]:6443"}
  kubeconfigs: [{name: admin}]
`)
	require.NoError(t, render.Prove(top, state, now))
	root, proxy := top.Root(), top.FrontProxies()[0]
	for c, ip := range map[*topology.Component]string{root: "2001:db8::2", proxy: "2001:db8::1"} {
		block, _ := pem.Decode(state.Leaves[pki.KeyOf(c, topology.CertServer)].Cert)
		cert, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(cert.IPAddresses, net.ParseIP(ip).Equal), "%s: %v", c.ID(), cert.IPAddresses)
	}
	find := func(kind, name string) *unstructured.Unstructured {
		i := slices.IndexFunc(objects, func(o render.Object) bool { return o.GetKind() == kind && o.GetName() == name })
		require.GreaterOrEqual(t, i, 0, name)
		return objects[i].Unstructured
	}
	containers, _, err := unstructured.NestedSlice(find("Deployment", "demo-root").Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	require.NoError(t, err)
	require.Equal(t, "https://[2001:db8::2]:6443", flagOf(args, "shard-base-url"))
	require.Equal(t, "https://[2001:db8::1]:6443", flagOf(args, "shard-external-url"))
	require.Equal(t, "2001:db8::1", flagOf(args, "external-hostname"))
	secret, _, err := unstructured.NestedString(find("Secret", "demo-kubeconfig-admin").Object, "data", render.KubeconfigKey)
	require.NoError(t, err)
	kubeconfig, err := base64.StdEncoding.DecodeString(secret)
	require.NoError(t, err)
	require.Contains(t, string(kubeconfig), "server: https://[2001:db8::1]:6443")
}

// The families of a cluster reach all of its Services, and no others. An overlay takes precedence.
func TestIPFamiliesOfServices(t *testing.T) {
	_, _, objects := rendered(t, `spec:
  external: {hostname: kcp.example.com}
  clusters:
  - {name: eu, context: eu, ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6, IPv4]}
  - {name: us, context: us}
  rootShard: {url: "https://root.example.com:6443", aliases: [old]}
  shards:
  - {name: alpha, url: "https://alpha.example.com:6443", service: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv6]}}
  - {name: beta, cluster: us, url: "https://beta.example.com:6443"}
`)
	got := map[string]string{}
	for _, o := range objects {
		if o.GetKind() != "Service" {
			continue
		}
		policy, _, err := unstructured.NestedString(o.Object, "spec", "ipFamilyPolicy")
		require.NoError(t, err)
		families, _, err := unstructured.NestedStringSlice(o.Object, "spec", "ipFamilies")
		require.NoError(t, err)
		got[o.GetName()] = strings.TrimSpace(policy + " " + strings.Join(families, ","))
	}
	const both = "PreferDualStack IPv6,IPv4"
	require.Equal(t, map[string]string{
		"demo-etcd-root": both, "demo-etcd-root-peers": both, "demo-root": both, "old": both, "demo-front-proxy-main": both,
		"demo-etcd-alpha": both, "demo-etcd-alpha-peers": both, "demo-shard-alpha": "SingleStack IPv6",
		"demo-etcd-beta": "", "demo-etcd-beta-peers": "", "demo-shard-beta": "",
	}, got)
}

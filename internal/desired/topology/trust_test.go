package topology_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// public has a front-proxy with a certificate of its own, and clients on two clusters.
const public = `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards: [{name: alpha, cluster: us, url: "https://alpha.example.com:6443"}]
  frontProxies: [{name: main, cluster: eu, serving: {secret: public}}, {name: internal, cluster: eu, external: {hostname: internal.example.com}}]
  kubeconfigs: [{name: admin, target: {frontProxy: internal}}]
`

func publicSetup(t *testing.T, ca string) *topology.Topology {
	t.Helper()
	s := topologytest.Setup(t, public)
	s.Spec.FrontProxies[0].Serving.CA = ca
	s.Spec.Kubeconfigs = append(s.Spec.Kubeconfigs, v1alpha1.Kubeconfig{
		Name: "user", User: "user", Target: v1alpha1.Target{FrontProxy: "main"}, Validity: s.Spec.Kubeconfigs[0].Validity,
	})
	return topology.Build(s)
}

// A kubeconfig has one bundle, with which its client verifies all servers that it dials with it.
func TestTrustOf(t *testing.T) {
	top := publicSetup(t, "PUBLIC")
	for _, tc := range []struct {
		id         topology.ID
		kubeconfig string
		own        string
	}{
		{"root-shard", topology.KubeconfigExternalLogicalClusterAdmin, ""}, // it dials the Service
		{"shard/alpha", topology.KubeconfigExternalLogicalClusterAdmin, "PUBLIC\n"},
		{"shard/alpha", topology.KubeconfigLogicalClusterAdmin, ""},
		{"kubeconfig/user", "kubeconfig", "PUBLIC\n"},
		{"kubeconfig/admin", "kubeconfig", ""},
	} {
		got := top.TrustOf(top.Component(tc.id), tc.kubeconfig)
		require.Equal(t, topology.Trust{CA: topology.ServerCA, Own: tc.own}, got, "%s %s", tc.id, tc.kubeconfig)
	}
	require.Empty(t, top.Mistrusted())
	require.Equal(t, "SETUP\nPUBLIC\n",
		string(top.Component("kubeconfig/user").Access.Trust().Bundle(func(topology.CA) []byte { return []byte("SETUP\n") })))
}

// Without the authority, a client of the front-proxy alone uses those of its system. A client of shards too cannot
// verify both.
func TestMistrusted(t *testing.T) {
	top := publicSetup(t, "")
	require.Equal(t, topology.Trust{System: true}, top.TrustOf(top.Component("shard/alpha"), topology.KubeconfigExternalLogicalClusterAdmin))
	var got []string
	for _, m := range top.Mistrusted() {
		got = append(got, fmt.Sprint(m.Client, " ", m.Server.Component, " ", m.Other))
	}
	require.Equal(t, []string{"kubeconfig/user front-proxy/main https://root.example.com:6443"}, got)
}

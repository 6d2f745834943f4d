package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/pkitest"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// elsewhere has a front-proxy with a certificate of its own, and clients on other clusters that dial it and the
// virtual workspaces of shards.
var elsewhere = `spec:
  external: {hostname: kcp.example.com}
  clusters: [{name: eu, context: eu}, {name: us, context: us}]
  rootShard: {cluster: eu, url: "https://root.example.com"}
  shards: [{name: alpha, cluster: eu, url: "https://alpha.example.com"}]
  frontProxies:
  - name: main
    cluster: eu
    serving:
      secret: public
      ca: |
        ` + indent(certificate) + `
  virtualWorkspaces: [{name: va, shard: alpha, cluster: us, url: "https://va.example.com"}]
  agents:
  - {name: widgets, cluster: us, workspace: "root:widgets", publishedResources: [{name: widgets, spec: {resource: {apiGroup: example.com, kind: Widget, versions: [v1]}}}]}
  workloads: {cluster: us, apis: [deployments.apps], clusters: [{name: edge, context: edge, syncMode: Pull}]}
`

// Every client verifies all servers that it dials with the one bundle of its kubeconfig.
func TestOneBundle(t *testing.T) {
	top, state, objects := rendered(t, elsewhere)
	require.NoError(t, render.Prove(top, state, now))
	union := string(state.CAs[topology.ServerCA].Trusted()) + certificate
	for secret, key := range map[string]string{
		"demo-agent-widgets-kubeconfigs": "kcp", "demo-workloads-controller-kubeconfigs": "kcp", "demo-syncer-edge-kubeconfigs": "kcp",
		"demo-vw-va-kubeconfigs": "external-logical-cluster-admin", "demo-kubeconfig-admin": "kubeconfig",
	} {
		for url, bundle := range kubeconfigOf(t, dataOf(t, objects, secret, key)) {
			require.Equal(t, "https://kcp.example.com:6443", url, secret)
			require.Equal(t, union, bundle, secret)
		}
	}
}

// The proof reads what is mounted. Each case breaks something that the table of connections does not know.
func TestProveAsRendered(t *testing.T) {
	for name, tc := range map[string]struct {
		spec  string
		spoil func(s *v1alpha1.Spec)
		want  []string
	}{
		"the authority of the own certificate is not known": {
			spec: elsewhere, spoil: func(s *v1alpha1.Spec) { s.FrontProxies[0].Serving.CA = "" },
			want: []string{
				"agent/widgets does not trust front-proxy/main at https://kcp.example.com:6443/clusters/root:widgets: the front-proxy presents a " +
					"certificate of your own, which the authorities of the system verify, and the client uses the server CA: set serving.ca",
				"kubeconfig/admin does not trust root-shard at https://root.example.com: demo-root-server, against the authorities of its system",
				"workloads/controller does not trust front-proxy/main",
				"cluster/edge does not trust front-proxy/main",
			},
		},
		"a flag names the bundle of another authority": {
			spec: "spec: {}", spoil: func(s *v1alpha1.Spec) { s.RootShard.ExtraArgs = []string{"--client-ca-file=/etc/kcp/ca/server.crt"} },
			want: []string{"root-shard at https://demo-root.kcp.svc.cluster.local:6443 does not accept front-proxy/main: demo-front-proxy-main-shard-client, " +
				"against the server CA"},
		},
		"a flag names a file that is not there": {
			spec: "spec: {}", spoil: func(s *v1alpha1.Spec) {
				s.RootShard.ExtraArgs = []string{"--shard-virtual-workspace-ca-file=/etc/kcp/ca/none.crt"}
			},
			want: []string{"root-shard: /etc/kcp/ca/none.crt is not mounted"},
		},
		"a flag without a value": {
			spec: "spec: {}", spoil: func(s *v1alpha1.Spec) { s.RootShard.ExtraArgs = []string{"--client-ca-file="} },
			want: []string{"root-shard: the flag --client-ca-file is missing"},
		},
		"a volume without the bundle": {
			spec: `spec: {rootShard: {podTemplate: {spec: {volumes: [{name: config, projected: {sources: [{configMap: {name: demo-ca, items: [{key: client.crt, path: ca/client.crt}]}}]}}]}}}}`,
			want: []string{"root-shard: /etc/kcp/ca/server.crt is not mounted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := topologytest.Setup(t, tc.spec)
			if tc.spoil != nil {
				tc.spoil(&s.Spec)
			}
			top := topology.Build(s)
			err := render.Prove(top, pkitest.Issue(t, top, now), now)
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// What kcpctl does not render, it cannot prove: files of the user are not an error.
func TestProveKnowsWhatItCannotRead(t *testing.T) {
	for name, args := range map[string]func(*v1alpha1.Spec){
		"a bundle": func(s *v1alpha1.Spec) { s.RootShard.ExtraArgs = []string{"--client-ca-file=/own/ca.crt"} },
		"kubeconfigs": func(s *v1alpha1.Spec) {
			s.FrontProxies[0].ExtraArgs = []string{"--shards-kubeconfig=/own/config", "--root-kubeconfig=/own/config"}
		},
	} {
		s := topologytest.Setup(t, "spec: {}")
		args(&s.Spec) // a setup file cannot say it, and an overlay of the pod can
		top := topology.Build(s)
		require.NoError(t, render.Prove(top, pkitest.Issue(t, top, now), now), name)
	}
	top := topologytest.BuildLocal(t, strings.Replace(elsewhere, "clusters: [{name: edge, context: edge, syncMode: Pull}]", "clusters: []", 1))
	require.NoError(t, render.Prove(top, pkitest.Issue(t, top, now), now), "on this machine nothing presents a certificate of the user")
}

// Shards send requests for mounted workspaces to front-proxies, and do not verify their certificates. The front-proxies
// verify the shards.
func TestProveOfMountsWithAnOwnCertificate(t *testing.T) {
	spec := `spec:
  external: {hostname: kcp.example.com}
  featureGates: {WorkspaceMounts: true}
  frontProxies:
  - name: main
    serving:
      secret: public
`
	for _, ca := range []string{"", "      ca: |\n        " + indent(certificate)} {
		top := topologytest.Build(t, spec+ca)
		state := pkitest.Issue(t, top, now)
		require.NoError(t, render.Prove(top, state, now))
		mounts := pki.KeyOf(top.Root(), topology.CertMountsProxy)
		state.Leaves[mounts] = state.Leaves[pki.KeyOf(top.Root(), topology.CertServer)]
		require.ErrorContains(t, render.Prove(top, state, now), "front-proxy/main at https://kcp.example.com:6443 does not accept root-shard")
	}
}

// The difference to BenchmarkAs is what the proof costs.
func BenchmarkProven(b *testing.B) {
	for _, shards := range []int{3, 100, 1000} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			top := topologytest.Build(b, manyShards(shards))
			state := pkitest.Issue(b, top, now)
			b.ReportAllocs()
			for b.Loop() {
				_, err := render.Proven(top, state, now, func(o render.Object) (string, error) { return o.GetName(), nil })
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkAs(b *testing.B) {
	for _, shards := range []int{3, 100, 1000} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			top := topologytest.Build(b, manyShards(shards))
			state := pkitest.Issue(b, top, now)
			b.ReportAllocs()
			for b.Loop() {
				_, err := render.As(top, state, func(o render.Object) (string, error) { return o.GetName(), nil })
				require.NoError(b, err)
			}
		})
	}
}

package pki

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// Each case breaks one thing in a setup that works, and names every line that the proof must say about it.
func TestProveFindsWhatCannotWork(t *testing.T) {
	for name, tc := range map[string]struct {
		secret string
		change func(*Cert)
		break_ func(*State, LeafKey)
		at     time.Duration
		want   []string
	}{
		"missing SAN": {
			secret: "demo-shard-beta-server",
			change: func(c *Cert) { c.Hosts = []string{"beta-vw.example.com", "demo-shard-beta.kcp-us.svc.us.local"} },
			want: []string{
				"root-shard (and 2 others) does not trust shard/beta at https://beta.example.com:6443: demo-shard-beta-server: x509: certificate is valid for beta-vw.example.com, demo-shard-beta.kcp-us.svc.us.local, not beta.example.com",
				"front-proxy/main does not trust shard/beta at https://beta.example.com:6443",
				"kubeconfig/ops does not trust shard/beta at https://beta.example.com:6443",
			},
		},
		"virtual workspaces' SAN": {
			secret: "demo-shard-beta-server",
			change: func(c *Cert) { c.Hosts = c.Hosts[:len(c.Hosts)-1] },
			want:   []string{"root-shard (and 2 others) does not trust shard/beta at https://beta-vw.example.com: "},
		},
		"external hostname": {
			secret: "demo-front-proxy-main-server",
			change: func(c *Cert) { c.Hosts = c.Hosts[:len(c.Hosts)-1] },
			want: []string{
				"shard/beta does not trust front-proxy/main at https://kcp.example.com:8443",
				"kubeconfig/admin does not trust front-proxy/main at https://kcp.example.com:8443",
			},
		},
		"Service name, which kcpctl asks for": {
			secret: "demo-cache-server",
			change: func(c *Cert) { c.Hosts = []string{"cache.example.com"} },
			want: []string{
				"root-shard does not trust cache-server at https://demo-cache.kcp.svc.cluster.local:6443",
				"kcpctl does not trust cache-server at demo-cache.kcp.svc.cluster.local",
			},
		},
		"serving certificate of the wrong CA": {
			secret: "demo-root-server",
			change: func(c *Cert) { c.CA = topology.ClientCA },
			want: []string{
				"root-shard (and 2 others) does not trust root-shard at https://root.example.com:6443: demo-root-server, against the server CA: x509: certificate signed by unknown authority",
				"shard/beta does not trust root-shard at https://root.example.com:6443",
			},
		},
		"client certificate of the wrong CA": {
			secret: "demo-front-proxy-main-requestheader",
			change: func(c *Cert) { c.CA = topology.ClientCA },
			want: []string{
				"root-shard at https://root.example.com:6443 (and 2 others) does not accept front-proxy/main: demo-front-proxy-main-requestheader, against the requestheader CA",
			},
		},
		"client certificate without client auth": {
			secret: "demo-shard-alpha-client",
			change: func(c *Cert) { c.Usages = []Usage{ServerAuth} },
			want: []string{
				"cache-server at https://demo-cache.kcp.svc.cluster.local:6443 does not accept shard/alpha: demo-shard-alpha-client, against the client CA: x509: certificate specifies an incompatible key usage",
				"root-shard at https://demo-root.kcp.svc.cluster.local:6443 does not accept shard/alpha",
			},
		},
		"serving certificate without server auth": {
			secret: "demo-vw-extra-server",
			change: func(c *Cert) { c.Usages = []Usage{ClientAuth} },
			want:   []string{"root-shard (and 2 others) does not trust virtual-workspaces/extra at https://alpha-vw.example.com:6443: demo-vw-extra-server, against the server CA: x509: certificate specifies an incompatible key usage"},
		},
		"etcd that cannot dial itself": {
			secret: "demo-etcd-root-server",
			change: func(c *Cert) { c.Usages = []Usage{ServerAuth} },
			want:   []string{"etcd/root at https://demo-etcd-root.kcp.svc.cluster.local:2379 (and 1 other) does not accept etcd/root"},
		},
		"etcd peer that is not known": {
			secret: "demo-etcd-root-peer",
			change: func(c *Cert) { c.Hosts = c.Hosts[:2] },
			want:   []string{"etcd/root does not trust etcd/root at demo-etcd-root-2.demo-etcd-root-peers.kcp.svc.cluster.local"},
		},
		"etcd's client of another CA": {
			secret: "demo-root-etcd-client",
			change: func(c *Cert) { c.CA = topology.ServerCA },
			want:   []string{"etcd/root at https://demo-etcd-root.kcp.svc.cluster.local:2379 does not accept root-shard: demo-root-etcd-client, against the etcd CA"},
		},
		"etcd's client for another etcd": {
			secret: "demo-root-etcd-client",
			change: func(c *Cert) { c.Hosts = []string{"client.demo-etcd-cache.kcp.svc.cluster.local"} },
			want:   []string{"etcd/root at https://demo-etcd-root.kcp.svc.cluster.local:2379 does not accept root-shard: demo-root-etcd-client: x509: certificate is valid for client.demo-etcd-cache.kcp.svc.cluster.local, not client.demo-etcd-root.kcp.svc.cluster.local"},
		},
		"etcd's client of an earlier kcpctl": {
			secret: "demo-shard-beta-etcd-client",
			change: func(c *Cert) { c.Hosts = nil },
			want:   []string{"etcd/beta at https://demo-etcd-beta.kcp-us.svc.us.local:2379 does not accept shard/beta: demo-shard-beta-etcd-client: x509: certificate is not valid for any names"},
		},
		"etcd that refuses its own probes": {
			secret: "demo-etcd-root-server",
			change: func(c *Cert) { c.Hosts = c.Hosts[:len(c.Hosts)-1] },
			want:   []string{"does not accept etcd/root: demo-etcd-root-server: x509: certificate is valid for"},
		},
		"etcd that kcpctl does not trust": {
			secret: "demo-etcd-root-server",
			change: func(c *Cert) { c.Hosts = []string{"localhost", "client.demo-etcd-root.kcp.svc.cluster.local"} },
			want:   []string{"kcpctl does not trust etcd/root at demo-etcd-root.kcp.svc.cluster.local"},
		},
		"expired client": {
			secret: "demo-kubeconfig-admin", at: 49 * time.Hour,
			want: []string{"front-proxy/main at https://kcp.example.com:8443 does not accept kubeconfig/admin: demo-kubeconfig-admin, against the client CA: x509: certificate has expired or is not yet valid"},
		},
		"not yet valid": {
			secret: "demo-vw-extra-front-proxy-client",
			change: func(c *Cert) {}, at: -time.Hour,
			want: []string{"does not accept virtual-workspaces/extra: demo-vw-extra-front-proxy-client, against the client CA: x509: certificate has expired or is not yet valid"},
		},
		"key of another": {
			secret: "demo-root-logical-cluster-admin", break_: swapKey,
			want: []string{"root-shard at https://root.example.com:6443 (and 2 others) does not accept root-shard: demo-root-logical-cluster-admin: the private key does not belong to the certificate"},
		},
		"missing": {
			secret: "demo-shard-beta-external-logical-cluster-admin",
			break_: func(s *State, k LeafKey) { delete(s.Leaves, k) },
			want:   []string{"front-proxy/main at https://kcp.example.com:8443 does not accept shard/beta: demo-shard-beta-external-logical-cluster-admin is missing"},
		},
		"two at once": {
			secret: "demo-root-logical-cluster-admin",
			change: func(c *Cert) { c.CA = topology.EtcdCA },
			break_: func(s *State, k LeafKey) { delete(s.Leaves, LeafKey{"us", "demo-shard-beta-logical-cluster-admin"}) },
			want: []string{
				"root-shard at https://root.example.com:6443 (and 2 others) does not accept root-shard: demo-root-logical-cluster-admin, against the client CA",
				"root-shard at https://root.example.com:6443 (and 2 others) does not accept shard/beta: demo-shard-beta-logical-cluster-admin is missing",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tp, s := issued(t, full)
			require.NoError(t, prove(tp, s, now()))
			if tc.change != nil {
				reissue(t, tp, s, tc.secret, tc.change, now())
			}
			if tc.break_ != nil {
				tc.break_(s, find(t, tp, tc.secret).Key())
			}
			err := prove(tp, s, now().Add(tc.at))
			require.Error(t, err)
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
			require.NotEmpty(t, clierr.Hint(err))
		})
	}
}

func TestProveTrustsTheBundleOfARotation(t *testing.T) {
	tp, s := issued(t, full)
	_, next := issued(t, full)
	key := find(t, tp, "demo-root-server").Key()
	s.Leaves[key] = next.Leaves[key]
	require.ErrorContains(t, prove(tp, s, now()), "unknown authority")
	a := s.CAs[topology.ServerCA]
	a.Bundle = next.CAs[topology.ServerCA].Cert
	s.CAs[topology.ServerCA] = a
	require.NoError(t, prove(tp, s, now()))
}

// A thousand shards have a million connections; what is wrong with one shard must not be said a thousand times.
func TestProveSaysEachFaultOnce(t *testing.T) {
	tp, s := issued(t, shards(20))
	delete(s.Leaves, find(t, tp, "demo-shard-s7-logical-cluster-admin").Key())
	err := prove(tp, s, now())
	require.ErrorContains(t, err, "(and 20 others) does not accept shard/s7: demo-shard-s7-logical-cluster-admin is missing")
	joined, ok := clierrCause(err).(interface{ Unwrap() []error })
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 1)
}

func clierrCause(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

func BenchmarkEnsureAndProve(b *testing.B) {
	for _, n := range []int{2, 100, 1000} {
		b.Run("new/"+shardsLabel(n), func(b *testing.B) {
			tp := topologytest.Build(b, shards(n))
			for b.Loop() {
				r := ensure(b, tp, &State{}, now())
				require.NoError(b, prove(tp, r.State, now()))
			}
		})
		b.Run("kept/"+shardsLabel(n), func(b *testing.B) {
			tp := topologytest.Build(b, shards(n))
			s := ensure(b, tp, &State{}, now()).State
			for b.Loop() {
				require.Empty(b, ensure(b, tp, s, now()).Changes)
				require.NoError(b, prove(tp, s, now()))
			}
		})
	}
}

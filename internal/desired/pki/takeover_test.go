package pki

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

func TestTakeOver(t *testing.T) {
	_, theirs := underOneRoot(t, false)
	authorities := map[topology.CA]Source{}
	for ca, a := range theirs.CAs {
		authorities[ca] = Source{Name: "Secret kcp/" + string(ca), Pair: a.Pair}
	}
	var keys []Source
	var want []byte
	for _, shard := range []string{"root", "alpha", "beta"} {
		signing := newUpper(t, shard+"-service-account", nil, v1alpha1.KeyRSA2048)
		keys = append(keys, Source{Name: "Secret kcp/" + shard, Pair: signing.pair})
		public, err := publicOf(signing.pair.Key)
		require.NoError(t, err)
		want = append(want, public...)
	}
	s, err := TakeOver(authorities, append(keys, keys[0]))
	require.NoError(t, err)
	require.Empty(t, diff(theirs.CAs, s.CAs))
	require.Equal(t, keys[0].Key, s.ServiceAccount.Key, "the root shard's key signs")
	require.Equal(t, string(want), string(s.ServiceAccount.Public), "the tokens of all shards stay valid")

	tp, _ := issued(t, "")
	imported, did, err := Import(&State{}, s, now())
	require.NoError(t, err)
	require.Equal(t, []string{"server CA", "client CA", "requestheader CA", "service-account key"}, did.Added)
	r := ensure(t, tp, imported, now())
	require.Equal(t, []topology.CA{topology.EtcdCA}, r.CAs)
	require.Equal(t, want, r.State.ServiceAccount.Public)
	n, err := EarlierKeys(r.State)
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

func TestTakeOverRefuses(t *testing.T) {
	ca := newUpper(t, "root-server-ca", nil, v1alpha1.KeyECDSAP256)
	for want, from := range map[string]Source{
		"Secret kcp/x: it has no private key": {Name: "Secret kcp/x", Pair: Pair{Cert: ca.pair.Cert}},
		"Secret kcp/x: no PEM certificate":    {Name: "Secret kcp/x", Pair: Pair{Key: ca.pair.Key}},
	} {
		_, err := TakeOver(map[topology.CA]Source{topology.ServerCA: from}, nil)
		require.EqualError(t, err, want)
	}
	_, err := TakeOver(nil, []Source{{Name: "Secret kcp/root-service-account"}})
	require.EqualError(t, err, "Secret kcp/root-service-account: it has no private key")
}

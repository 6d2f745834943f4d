package pki

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestEncodeDecode(t *testing.T) {
	_, s := issued(t, "")
	s.CAs[topology.EtcdCA] = Authority{Pair: Pair{Cert: s.CAs[topology.EtcdCA].Cert}, Bundle: s.CAs[topology.ServerCA].Cert}
	data := Encode(s)
	require.Equal(t, []string{
		"client-ca.crt", "client-ca.key", "etcd-ca.bundle", "etcd-ca.crt", "installation.json", "requestheader-ca.crt", "requestheader-ca.key",
		"sa.key", "sa.pub", "server-ca.crt", "server-ca.key",
	}, slices.Sorted(maps.Keys(data)))
	got, err := Decode(data)
	require.NoError(t, err)
	s.Leaves = map[LeafKey]Pair{}
	require.Empty(t, diff(s, got))
	empty, err := Decode(nil)
	require.NoError(t, err)
	require.Empty(t, Encode(empty))
}

func TestDecodeRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(map[string][]byte)
		want   string
	}{
		"key alone":       {func(d map[string][]byte) { delete(d, "server-ca.crt") }, "the server CA: a key or a bundle exists, but no certificate"},
		"no certificate":  {func(d map[string][]byte) { d["server-ca.crt"] = []byte("x") }, "the server CA: no PEM certificate"},
		"no key":          {func(d map[string][]byte) { d["server-ca.key"] = []byte("x") }, "the server CA: not an unencrypted PEM private key"},
		"bad bundle":      {func(d map[string][]byte) { d["server-ca.bundle"] = []byte("x") }, "the server CA: the bundle: no PEM certificate"},
		"bad token key":   {func(d map[string][]byte) { d["sa.key"] = []byte("x") }, "the service-account keys: not an unencrypted"},
		"bad public keys": {func(d map[string][]byte) { d["sa.pub"] = d["server-ca.crt"] }, "the service-account keys: the public keys: "},
		"unknown value":   {func(d map[string][]byte) { d["x"] = nil }, `"x" is not part of a PKI`},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := issued(t, "")
			data := Encode(s)
			tc.change(data)
			_, err := Decode(data)
			require.ErrorContains(t, err, tc.want)
			require.NotEmpty(t, clierr.Hint(err))
			require.NotContains(t, err.Error(), "PRIVATE")
		})
	}
}

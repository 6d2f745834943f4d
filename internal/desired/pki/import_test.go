package pki

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

func TestImport(t *testing.T) {
	tp, theirs := issued(t, "")
	keyless := theirs.Authorities()
	a := keyless.CAs[topology.ClientCA]
	a.Key = nil
	keyless.CAs[topology.ClientCA] = a
	all := []string{"server CA", "client CA", "requestheader CA", "etcd CA", "service-account key"}
	for name, tc := range map[string]struct {
		to, from *State
		want     ImportResult
	}{
		"all":           {&State{}, theirs, ImportResult{Added: all}},
		"again":         {theirs, theirs.Authorities(), ImportResult{Same: all}},
		"without a key": {&State{}, keyless, ImportResult{Added: all, Keyless: []topology.CA{topology.ClientCA}}},
		"the key later": {keyless, theirs, ImportResult{
			Added: []string{"private key of the client CA"}, Same: []string{"server CA", "requestheader CA", "etcd CA", "service-account key"},
		}},
		"not the key":  {theirs, keyless, ImportResult{Same: all}},
		"one":          {&State{}, &State{CAs: map[topology.CA]Authority{topology.EtcdCA: theirs.CAs[topology.EtcdCA]}}, ImportResult{Added: []string{"etcd CA"}}},
		"only the key": {&State{}, &State{ServiceAccount: theirs.ServiceAccount}, ImportResult{Added: all[4:]}},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.to.clone()
			got, did, err := Import(tc.to, tc.from, now())
			require.NoError(t, err)
			require.Empty(t, diff(&tc.want, did))
			require.Empty(t, diff(before, tc.to.clone()), "the given state stays as it is")
			for ca, a := range tc.from.CAs {
				require.Equal(t, a.Cert, got.CAs[ca].Cert)
			}
		})
	}
	got, _, err := Import(&State{}, theirs, now())
	require.NoError(t, err)
	require.Empty(t, ensure(t, tp, got, now()).CAs, "none is created")
}

func TestImportRefuses(t *testing.T) {
	_, ours := issued(t, "")
	_, theirs := issued(t, "")
	for name, tc := range map[string]struct {
		to, from *State
		at       time.Duration
		want     string
		code     int
	}{
		"another authority": {to: ours, from: theirs, want: "the setup already uses another server CA", code: clierr.Conflict},
		"another key": {
			to: ours, from: &State{ServiceAccount: theirs.ServiceAccount},
			want: "the setup already uses another service-account key", code: clierr.Conflict,
		},
		"expired": {to: &State{}, from: theirs, at: 87601 * time.Hour, want: "the server CA: it expired on 2036-11-17", code: clierr.BadInput},
		"not yet valid": {
			to: &State{}, from: theirs, at: -time.Hour, want: "the server CA: it is not valid before", code: clierr.BadInput,
		},
		"one for two": {
			to: &State{}, from: &State{CAs: map[topology.CA]Authority{topology.ServerCA: theirs.CAs[topology.ServerCA], topology.ClientCA: theirs.CAs[topology.ServerCA]}},
			want: "the server CA and the client CA are the same certificate", code: clierr.BadInput,
		},
		"one that another has": {
			to: &State{CAs: map[topology.CA]Authority{topology.ServerCA: theirs.CAs[topology.ServerCA]}}, from: &State{CAs: map[topology.CA]Authority{topology.ClientCA: theirs.CAs[topology.ServerCA]}},
			want: "the server CA and the client CA are the same certificate", code: clierr.BadInput,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Import(tc.to, tc.from, now().Add(tc.at))
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, tc.code, clierr.Code(err))
			require.NotEmpty(t, clierr.Hint(err))
		})
	}
}

func TestImportReplacing(t *testing.T) {
	_, ours := issued(t, "")
	_, theirs := issued(t, "")
	out, did, err := ImportReplacing(ours, theirs, now())
	require.NoError(t, err)
	require.Equal(t, theirs.CAs, out.CAs)
	require.Equal(t, theirs.ServiceAccount, out.ServiceAccount)
	require.Equal(t, ours.Installation, out.Installation)
	require.Len(t, did.Added, len(topology.CAs)+1)
}

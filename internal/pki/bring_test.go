package pki

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/clierr"
)

func TestBring(t *testing.T) {
	tp, theirs := issued(t, "")
	keyless := theirs.Authorities()
	a := keyless.CAs[ClientCA]
	a.Key = nil
	keyless.CAs[ClientCA] = a
	all := []string{"server CA", "client CA", "requestheader CA", "etcd CA", "service-account key"}
	for name, tc := range map[string]struct {
		to, from *State
		want     Brought
	}{
		"all":           {&State{}, theirs, Brought{Added: all}},
		"again":         {theirs, theirs.Authorities(), Brought{Same: all}},
		"without a key": {&State{}, keyless, Brought{Added: all, Keyless: []CA{ClientCA}}},
		"the key later": {keyless, theirs, Brought{
			Added: []string{"private key of the client CA"}, Same: []string{"server CA", "requestheader CA", "etcd CA", "service-account key"},
		}},
		"not the key":  {theirs, keyless, Brought{Same: all}},
		"one":          {&State{}, &State{CAs: map[CA]Authority{EtcdCA: theirs.CAs[EtcdCA]}}, Brought{Added: []string{"etcd CA"}}},
		"only the key": {&State{}, &State{ServiceAccount: theirs.ServiceAccount}, Brought{Added: all[4:]}},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.to.clone()
			got, did, err := Bring(tc.to, tc.from, now())
			require.NoError(t, err)
			require.Empty(t, diff(&tc.want, did))
			require.Empty(t, diff(before, tc.to.clone()), "the given state stays as it is")
			for ca, a := range tc.from.CAs {
				require.Equal(t, a.Cert, got.CAs[ca].Cert)
			}
		})
	}
	got, _, err := Bring(&State{}, theirs, now())
	require.NoError(t, err)
	require.Empty(t, ensure(t, tp, got, now()).CAs, "none is made anew")
}

func TestBringRefuses(t *testing.T) {
	_, ours := issued(t, "")
	_, theirs := issued(t, "")
	for name, tc := range map[string]struct {
		to, from *State
		at       time.Duration
		want     string
		code     int
	}{
		"another authority": {to: ours, from: theirs, want: "the setup has another server CA already", code: clierr.Conflict},
		"another key": {
			to: ours, from: &State{ServiceAccount: theirs.ServiceAccount},
			want: "the setup has another service-account key already", code: clierr.Conflict,
		},
		"expired": {to: &State{}, from: theirs, at: 87601 * time.Hour, want: "the server CA: it expired on 2036-11-17", code: clierr.BadInput},
		"not yet valid": {
			to: &State{}, from: theirs, at: -time.Hour, want: "the server CA: it is valid only from", code: clierr.BadInput,
		},
		"one for two": {
			to: &State{}, from: &State{CAs: map[CA]Authority{ServerCA: theirs.CAs[ServerCA], ClientCA: theirs.CAs[ServerCA]}},
			want: "the server CA and the client CA are the same certificate", code: clierr.BadInput,
		},
		"one that another has": {
			to: &State{CAs: map[CA]Authority{ServerCA: theirs.CAs[ServerCA]}}, from: &State{CAs: map[CA]Authority{ClientCA: theirs.CAs[ServerCA]}},
			want: "the server CA and the client CA are the same certificate", code: clierr.BadInput,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Bring(tc.to, tc.from, now().Add(tc.at))
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, tc.code, clierr.Code(err))
			require.NotEmpty(t, clierr.Hint(err))
		})
	}
}

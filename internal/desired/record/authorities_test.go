package record_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// bundled returns a PKI whose client CA has further certificates: those of other PKIs.
func bundled(s *pki.State, more ...*pki.State) *pki.State {
	out := *s
	out.CAs = map[topology.CA]pki.Authority{}
	for ca, a := range s.CAs {
		out.CAs[ca] = a
	}
	client := out.CAs[topology.ClientCA]
	client.Bundle = nil
	for _, m := range more {
		client.Bundle = append(bytes.Clone(client.Bundle), m.CAs[topology.ClientCA].Cert...)
	}
	out.CAs[topology.ClientCA] = client
	return &out
}

// numbered is the record of a PKI after others.
func numbered(states ...*pki.State) *record.Record {
	known := &record.Record{}
	for _, s := range states {
		known = known.With(s, nil).Numbered(known)
	}
	return known
}

// Further certificates of a bundle come and go only on request, each by its own fingerprint.
func TestFurtherCertificates(t *testing.T) {
	ours, a, b := ensured(t, &pki.State{}), ensured(t, &pki.State{}), ensured(t, &pki.State{})
	of := func(s *pki.State) string { return s.Fingerprints()["client-ca"].Current }
	none, withA, withB, both := bundled(ours), bundled(ours, a), bundled(ours, b), bundled(ours, b, a)
	for name, tc := range map[string]struct {
		known   *record.Record
		state   *pki.State
		want    string
		allowed []string
	}{
		"none":                     {known: numbered(none), state: none},
		"the same":                 {known: numbered(withA), state: withA},
		"in another order":         {known: numbered(bundled(ours, a, b)), state: both},
		"twice":                    {known: numbered(withA), state: bundled(ours, a, a)},
		"one that is trusted":      {known: numbered(none), state: bundled(ours, ours)},
		"one more":                 {known: numbered(none), state: withA, want: "its bundle has " + record.Short(of(a)), allowed: []string{of(a)}},
		"one less":                 {known: numbered(withA), state: none, want: "its bundle lacks " + record.Short(of(a)), allowed: []string{record.Short(of(a))}},
		"another one":              {known: numbered(withA), state: withB, want: "its bundle has " + record.Short(of(b)), allowed: []string{of(a), of(b)}},
		"a removed one":            {known: numbered(withA, none), state: withA, want: "which was removed", allowed: []string{of(a)}},
		"an earlier record":        {known: (&record.Record{}).With(none, nil), state: withA},
		"a PKI without the client": {known: numbered(withA), state: &pki.State{}, want: "client CA: it is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.known.CheckAuthorities(tc.state, "the store")
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.NotEmpty(t, clierr.Hint(err))
			for _, part := range [][]string{nil, {of(ours)}, {"sha256:"}} {
				require.Error(t, tc.known.CheckAuthorities(tc.state, "the store", part...))
			}
			if tc.allowed != nil {
				require.NoError(t, tc.known.CheckAuthorities(tc.state, "the store", tc.allowed...))
			}
		})
	}
}

// While a next key or authority is pending, previous ones are compared too.
func TestPreviousWhileANextOneIsPending(t *testing.T) {
	other := ensured(t, &pki.State{})
	for _, rotation := range pki.AllRotations() {
		if rotation == (pki.EncryptionRotation{}) {
			continue // it has one previous key at most
		}
		all := phases(t, rotation)
		for i, applied := range all[:3] {
			known, next := numbered(applied), *all[i+1]
			next.CAs = map[topology.CA]pki.Authority{}
			for ca, a := range all[i+1].CAs {
				if rotation.Key() == pki.RotationOf(ca).Key() {
					a.Previous = append(bytes.Clone(a.Previous), other.CAs[ca].Cert...)
				}
				next.CAs[ca] = a
			}
			if rotation == (pki.KeyRotation{}) {
				next.ServiceAccount.Public = append(bytes.Clone(next.ServiceAccount.Public), other.ServiceAccount.Public...)
			}
			require.NoError(t, known.CheckAuthorities(all[i+1], "the store"), "%s: phase %d", rotation, i)
			require.ErrorContains(t, known.CheckAuthorities(&next, "the store"), "which the installation does not know", "%s: phase %d", rotation, i)
		}
	}
}

// The serial grows with each change, and the record of an earlier kcpctl gets one.
func TestSerial(t *testing.T) {
	s := ensured(t, &pki.State{})
	first := (&record.Record{}).With(s, nil).Numbered(&record.Record{})
	require.EqualValues(t, 1, first.Serial)
	require.EqualValues(t, 1, first.With(s, nil).Numbered(first).Serial, "nothing has changed")
	second := first.Remove(false, "shard/alpha").Numbered(first)
	require.EqualValues(t, 2, second.Serial)
	earlier := (&record.Record{}).With(s, nil)
	require.True(t, earlier.Unnoted())
	require.EqualValues(t, 1, earlier.Numbered(earlier).Serial)
	raw, err := second.Encode("v0.9.0", nil)
	require.NoError(t, err)
	got, err := record.Decode(raw)
	require.NoError(t, err)
	require.EqualValues(t, 2, got.Serial)
}

// A record is older than what was applied if any place has noted a larger serial. Accepted, it becomes the latest one.
func TestRestoredRecord(t *testing.T) {
	s := ensured(t, &pki.State{})
	for name, tc := range map[string]struct {
		serial   int64
		noted    []int64
		restored bool
		unnoted  bool
	}{
		"noted everywhere":    {serial: 5, noted: []int64{5, 5}},
		"noted by one":        {serial: 5, noted: []int64{5, 0}, unnoted: true},
		"interrupted":         {serial: 5, noted: []int64{4, 4}, unnoted: true},
		"restored":            {serial: 5, noted: []int64{5, 7}, restored: true, unnoted: true},
		"an earlier kcpctl's": {serial: 0, noted: []int64{3}, restored: true, unnoted: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := (&record.Record{}).With(s, nil)
			r.Serial = tc.serial
			for _, n := range tc.noted {
				r.Witness(n)
			}
			require.Equal(t, tc.unnoted, r.Unnoted())
			err := r.CheckRestored()
			require.Equal(t, tc.restored, err != nil, err)
			if tc.restored {
				require.ErrorContains(t, err, "is older than what was applied last")
				require.Contains(t, clierr.Hint(err), "--allow restored-record")
				before := r.Purge()
				require.Equal(t, tc.serial, r.Numbered(before).Serial, "no command accepts it by the way")
				r.AcceptRestored()
				require.Greater(t, r.Numbered(before).Serial, r.Witnessed)
			}
		})
	}
	require.NoError(t, (&record.Record{Witnessed: 7}).CheckRestored(), "a lost record is not a restored one")
}

// A PKI that was lost gets the identity of the record, and the prefix that the data has.
func TestIdentity(t *testing.T) {
	of := func(id string, etcd string) *record.Record {
		return &record.Record{Installation: id, Data: map[topology.ID]record.Data{"shard/alpha": {Etcd: etcd}}}
	}
	require.Equal(t, pki.Installation{}, (&record.Record{}).Identity("demo"))
	require.Equal(t, pki.Installation{}, of("demo", "").Identity("demo"))
	require.Equal(t, pki.Installation{ID: "demo-x", EtcdPrefix: "/demo-x"}, of("demo-x", "external https://e below /demo-x/alpha").Identity("demo"))
	require.Equal(t, pki.Installation{ID: "demo-x", EtcdPrefix: "/demo"}, of("demo-x", "external https://e below /demo/alpha").Identity("demo"))
}

// without returns a PKI without the private keys of authorities.
func without(s *pki.State, lost ...topology.CA) *pki.State {
	out := bundled(s)
	for _, ca := range lost {
		a := out.CAs[ca]
		a.Key = nil
		out.CAs[ca] = a
	}
	return out
}

// An authority that was imported without its key lacks none; one whose key was in the store has lost it, until it is
// replaced.
func TestLostKeys(t *testing.T) {
	ours, other := ensured(t, &pki.State{}), ensured(t, &pki.State{})
	keyless := without(ours, topology.ClientCA)
	earlier := numbered(ours)
	earlier.Keyed = nil
	for name, tc := range map[string]struct {
		known *record.Record
		state *pki.State
		want  []topology.CA
	}{
		"all are there":                {numbered(ours), ours, nil},
		"imported without it":          {numbered(keyless), keyless, nil},
		"lost":                         {numbered(ours), keyless, []topology.CA{topology.ClientCA}},
		"lost for several runs":        {numbered(ours, keyless, keyless), keyless, []topology.CA{topology.ClientCA}},
		"found again":                  {numbered(ours, keyless), ours, nil},
		"added later, then lost":       {numbered(keyless, ours), keyless, []topology.CA{topology.ClientCA}},
		"replaced":                     {numbered(ours, keyless, other), other, nil},
		"a record of earlier releases": {earlier, keyless, nil},
		"nothing is installed":         {&record.Record{}, keyless, nil},
		"the others can be rotated": {
			numbered(ours), without(ours, topology.ServerCA, topology.EtcdCA), []topology.CA{topology.ServerCA, topology.EtcdCA},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, tc.known.LostKeys(tc.state))
			message, next := tc.known.LostKeysMessage(tc.state, "directory pki")
			if tc.want == nil {
				require.Empty(t, message+next)
				return
			}
			keys, advice := "key of the client CA", "kcpctl up --replace-authorities"
			if len(tc.want) > 1 {
				keys, advice = "keys of the server CA, etcd CA", "kcpctl certs rotate-ca server etcd"
			}
			require.Equal(t, "the PKI store (directory pki) lacks the private "+keys+", which installation "+
				ours.Installation.ID+" has used", message)
			require.Contains(t, next, "kcpctl certs import")
			require.Contains(t, next, advice)
			require.NoError(t, tc.known.CheckAuthorities(tc.state, "the store"), "a rotation must be possible")
		})
	}
}

// Which keys were there is stored, and a record without it needs no run.
func TestKeyedIsStored(t *testing.T) {
	ours := ensured(t, &pki.State{})
	known := numbered(ours)
	require.Len(t, known.Keyed, 4)
	raw, err := known.Encode("test", nil)
	require.NoError(t, err)
	read, err := record.Decode(raw)
	require.NoError(t, err)
	require.Equal(t, known.Keyed, read.Keyed)
	read.Keyed = nil
	require.True(t, known.Equal(read))
	read.Keyed = known.Keyed[:3]
	require.False(t, known.Equal(read))
}

// Without the key that encrypts data, nothing can read it: no flag allows that.
func TestCheckEncryption(t *testing.T) {
	all := phases(t, pki.EncryptionRotation{})
	plain := *all[0]
	plain.Encryption = pki.Encryption{}
	for name, tc := range map[string]struct {
		known *record.Record
		state *pki.State
		lost  bool
	}{
		"a new installation": {(*record.Record)(nil), &plain, false},
		"nothing encrypted":  {numbered(&plain), &plain, false},
		"the key":            {numbered(all[0]), all[0], false},
		"the previous key":   {numbered(all[1]), all[2], false},
		"no key":             {numbered(all[0]), &plain, true},
		"another key":        {numbered(all[0]), all[3], true},
	} {
		err := tc.known.CheckEncryption(tc.state, "the store")
		if !tc.lost {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "the store does not have the encryption key of installation ", name)
		require.ErrorContains(t, err, "without it, the data in etcd cannot be read", name)
	}
}

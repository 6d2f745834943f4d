package pki

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

const (
	plain    = "spec:\n  version: v0.32.3\n"
	secrets  = plain + "  encryption: {}\n"
	both     = plain + "  encryption: {resources: [secrets, configmaps]}\n"
	settings = plain + "  encryption: {resources: [configmaps]}\n"
	withKMS  = plain + "  encryption: {kms: {endpoint: unix:///run/kms.sock}}\n"
	otherKMS = plain + "  encryption: {kms: {name: other, endpoint: unix:///run/other.sock}}\n"
)

// A new installation encrypts from the beginning. In one that runs, the key only decrypts until it is everywhere.
func TestEncryptionBegins(t *testing.T) {
	_, s := issued(t, secrets)
	require.True(t, s.Encryption.Encrypts("secrets", []string{"secrets"}))
	require.Equal(t, PhaseNone, EncryptionRotation{}.Phase(s))

	_, s = issued(t, plain)
	require.Equal(t, Encryption{}, s.Encryption)
	tp := topologytest.Build(t, secrets)
	s = ensure(t, tp, s, now()).State
	require.NotEmpty(t, s.Encryption.Key)
	require.False(t, s.Encryption.Encrypts("secrets", []string{"secrets"}))
	require.Equal(t, PhaseDistribute, EncryptionRotation{}.Phase(s))
	first := s.Encryption.Key
	s = advance(t, tp, EncryptionRotation{}, s)
	require.True(t, s.Encryption.Encrypts("secrets", []string{"secrets"}))
	s = advance(t, tp, EncryptionRotation{}, s)
	require.Equal(t, Encryption{Key: first, Resources: []string{"secrets"}}, s.Encryption)

	// down deletes the certificates, and keeps what is stored. If the PKI is lost, the record knows the installation.
	_, down := issued(t, plain)
	clear(down.Leaves)
	s = ensure(t, tp, down, now()).State
	require.Equal(t, PhaseDistribute, EncryptionRotation{}.Phase(s))
	require.Empty(t, s.Encryption.Resources, "what is stored is not encrypted")
	r, err := Ensure(tp, &State{}, Options{Now: now(), Installation: down.Installation, Replace: true})
	require.NoError(t, err)
	require.Equal(t, PhaseDistribute, EncryptionRotation{}.Phase(r.State))

	// The shards of a kcp-operator run until the setup has taken them over.
	_, s = issued(t, secrets+"  takeOver: {rootShard: prod, uid: u1}\n")
	require.False(t, s.Encryption.Encrypts("secrets", []string{"secrets"}))
	require.Equal(t, PhaseDistribute, EncryptionRotation{}.Phase(s))
}

// In each phase, and while a setup moves between two of them, every shard can read what another one writes.
func TestShardsReadWhatOthersEncrypt(t *testing.T) {
	for name, tc := range map[string]struct{ from, to string }{
		"another key": {secrets, secrets}, "more resources": {secrets, both}, "fewer resources": {both, secrets},
		"other resources": {secrets, settings}, "none": {both, plain}, "for the first time": {plain, both},
		"a KMS": {secrets, withKMS}, "the KMS again": {withKMS, withKMS}, "another KMS": {withKMS, otherKMS},
		"no KMS": {withKMS, both}, "a KMS for the first time": {plain, withKMS},
	} {
		t.Run(name, func(t *testing.T) {
			_, before := issued(t, tc.from)
			tp := topologytest.Build(t, tc.to)
			last := ensure(t, tp, before, now()).State
			states := []*State{last}
			for range 3 {
				if last.Encryption.Phase == PhaseNone && len(states) > 1 {
					break
				}
				last = advance(t, tp, EncryptionRotation{}, last)
				states = append(states, last)
			}
			requireReadable(t, topologytest.Build(t, tc.from), before, tp, states[0])
			for i := range states[1:] {
				requireReadable(t, tp, states[i], tp, states[i+1])
			}
			require.Equal(t, EncryptedResources(tp), last.Encryption.Resources)
			require.Len(t, last.Encryption.Keys(), 1)
		})
	}
}

// requireReadable requires that shards with one state can read what shards with another one write, in both directions.
func requireReadable(t *testing.T, atA *topology.Topology, a *State, atB *topology.Topology, b *State) {
	t.Helper()
	for _, pair := range []struct {
		writer, reader *State
		wAt, rAt       *topology.Topology
	}{{a, b, atA, atB}, {b, a, atB, atA}} {
		wanted := EncryptedResources(pair.wAt)
		for _, resource := range pair.writer.Encryption.Covers(wanted) {
			if !pair.writer.Encryption.Encrypts(resource, wanted) {
				continue
			}
			key := pair.writer.Encryption.Key
			require.Contains(t, pair.reader.Encryption.Keys(), key)
			require.Equal(t, pair.writer.Encryption.KMS[key], pair.reader.Encryption.KMS[key])
			require.Contains(t, pair.reader.Encryption.Covers(EncryptedResources(pair.rAt)), resource)
		}
	}
}

// A KMS is known by its name, so its socket can move. A change between a KMS and keys of kcpctl is a rotation, which
// begins by itself.
func TestKMS(t *testing.T) {
	at := func(text string, s *State) *State { return ensure(t, topologytest.Build(t, text), s, now()).State }
	_, first := issued(t, withKMS)
	key := first.Encryption.Key
	require.Equal(t, map[string]v1alpha1.KMS{key: {Name: "kms", Endpoint: "unix:///run/kms.sock"}}, first.Encryption.KMS)
	require.Equal(t, "k8s:enc:kms:v2:"+EncryptionKeyName(key)+".", string(first.Encryption.EncryptedWith(key)))
	decoded, err := Decode(Encode(first))
	require.NoError(t, err)
	require.Equal(t, first.Encryption, decoded.Encryption)

	moved := at(plain+"  encryption: {kms: {endpoint: unix:///run/new.sock}}\n", first).Encryption
	require.Equal(t, "unix:///run/new.sock", moved.KMS[key].Endpoint)
	require.Equal(t, PhaseNone, moved.Phase)
	require.Equal(t, "unix:///run/kms.sock", first.Encryption.KMS[key].Endpoint, "the state from before is as it was")
	previous := func(s *State, text string) []string {
		return s.Encryption.PreviousKMS(topologytest.Build(t, text).Setup.Spec.Encryption)
	}
	require.Empty(t, previous(first, withKMS))
	for _, text := range []string{secrets, plain, otherKMS} {
		require.Equal(t, []string{"kms"}, previous(at(text, first), text))
	}
	require.Equal(t, first.Encryption, at(plain, first).Encryption, "what is encrypted can still be read")

	s := at(secrets, first)
	require.Equal(t, PhaseDistribute, s.Encryption.Phase)
	require.Equal(t, key, s.Encryption.Key)
	require.Equal(t, s, at(secrets, s), "once")
	s = advance(t, topologytest.Build(t, secrets), EncryptionRotation{}, s)
	require.Equal(t, []string{"kms"}, previous(s, secrets), "objects may still be stored as before")
	s = advance(t, topologytest.Build(t, secrets), EncryptionRotation{}, s)
	require.Equal(t, Encryption{Key: s.Encryption.Key, Resources: []string{"secrets"}}, s.Encryption, "nothing needs the KMS")
	require.Empty(t, previous(s, secrets))
	ended := first
	for range 3 {
		ended = advance(t, topologytest.Build(t, plain), EncryptionRotation{}, ended)
	}
	require.Empty(t, previous(ended, plain), "nothing is encrypted any more")
	require.Equal(t, "k8s:enc:secretbox:v1:"+EncryptionKeyName(s.Encryption.Key)+":",
		string(s.Encryption.EncryptedWith(s.Encryption.Key)))
}

// A rotation to a KMS that never answers can be left: nothing is encrypted with the next key yet, so that it becomes
// one of what the setup has instead. The fingerprints of the keys stay, so that the PKI is still that of the installation.
func TestAKMSThatHasEncryptedNothingIsLeft(t *testing.T) {
	for name, tc := range map[string]struct{ before, after string }{
		"a key of kcpctl": {secrets, secrets}, "another KMS": {otherKMS, otherKMS}, "nothing": {secrets, plain},
		"a third KMS": {secrets, otherKMS},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := issued(t, tc.before)
			s = ensure(t, topologytest.Build(t, withKMS), s, now()).State
			next := s.Encryption.Next
			require.Equal(t, "kms", s.Encryption.KMS[next].Name)
			require.Equal(t, PhaseDistribute, s.Encryption.Phase)

			tp := topologytest.Build(t, tc.after)
			left := ensure(t, tp, s, now()).State
			require.Equal(t, s.Fingerprints(), left.Fingerprints())
			require.Equal(t, "kms", s.Encryption.KMS[next].Name, "the state from before is as it was")
			require.NotContains(t, left.Encryption.PreviousKMS(tp.Setup.Spec.Encryption), "kms")
			for _, last := range []*State{left, advance(t, tp, EncryptionRotation{}, s)} {
				for key, k := range last.Encryption.KMS {
					require.Equal(t, "other", k.Name, key)
				}
			}
			requireReadable(t, tp, left, tp, advance(t, tp, EncryptionRotation{}, left))
		})
	}
}

// A setup that no longer encrypts keeps its key, with which backups can be read, and uses it when it encrypts again.
func TestEncryptionEndsAndBeginsAgain(t *testing.T) {
	_, s := issued(t, secrets)
	key, off := s.Encryption.Key, topologytest.Build(t, plain)
	for range 3 {
		s = advance(t, off, EncryptionRotation{}, s)
	}
	require.Equal(t, Encryption{Key: key}, s.Encryption)
	s = ensure(t, topologytest.Build(t, secrets), s, now()).State
	require.Equal(t, Encryption{Key: key, Phase: PhaseDistribute}, s.Encryption)
}

func TestEncryptionKeyMustExist(t *testing.T) {
	tp, s := issued(t, plain)
	_, err := EncryptionRotation{}.Advance(tp, s, PhaseNone, time.Time{})
	require.EqualError(t, err, "rotate the encryption key: the setup has none")
}

// A damaged key is refused without quoting it.
func TestDamagedEncryption(t *testing.T) {
	_, s := issued(t, secrets)
	for _, damaged := range []string{
		`{"key":"c2hvcnQ="}`, `{"key":"` + s.Encryption.Key + `","more":1}`, `{"key":"secret`, `{"next":"` + s.Encryption.Key + `"}`,
		`{"key":"` + s.Encryption.Key + `","previous":"no base64"}`,
	} {
		encoded := Encode(s)
		encoded[keyEncryption] = []byte(damaged)
		_, err := Decode(encoded)
		require.ErrorContains(t, err, "encryption.key: ")
		require.NotContains(t, err.Error(), s.Encryption.Key)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestImportEncryption(t *testing.T) {
	_, ours := issued(t, secrets)
	_, theirs := issued(t, secrets)
	empty, res, err := Import(&State{}, ours, now())
	require.NoError(t, err)
	require.Equal(t, ours.Encryption, empty.Encryption)
	require.Contains(t, res.Added, "encryption key")
	_, res, err = Import(ours, ours, now())
	require.NoError(t, err)
	require.Contains(t, res.Same, "encryption key")
	only := &State{Encryption: theirs.Encryption}
	_, _, err = Import(ours, only, now())
	require.EqualError(t, err, "the setup already uses another encryption key; nothing was changed")
}

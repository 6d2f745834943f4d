package pki

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// rotate takes everything that can be rotated one phase on.
func rotate(t testing.TB, tp *topology.Topology, s *State) *State {
	t.Helper()
	for _, r := range AllRotations() {
		s = advance(t, tp, r, s)
	}
	return s
}

// advance takes a rotation one phase on, as a run does.
func advance(t testing.TB, tp *topology.Topology, r Rotation, s *State) *State {
	t.Helper()
	next, err := r.Advance(tp, s, r.Phase(s), now())
	require.NoError(t, err)
	return ensure(t, tp, next, now()).State
}

// whole is a rotation from its beginning: before it, in each phase, and after it.
func whole(t testing.TB, tp *topology.Topology, r Rotation, s *State) []*State {
	t.Helper()
	all := []*State{s}
	for range 3 {
		all = append(all, advance(t, tp, r, all[len(all)-1]))
	}
	return all
}

// While a setup moves from one phase to the next, some components are in the previous phase and some in the next one.
// All of them trust what the others present, in any order, and a run in between changes nothing.
func TestEveryPhaseGoesWithItsNeighbours(t *testing.T) {
	for _, r := range AllRotations() {
		t.Run(r.String(), func(t *testing.T) {
			tp, s := issued(t, full)
			states := whole(t, tp, r, s)
			var phases []Phase
			for i, s := range states {
				phases = append(phases, r.Phase(s))
				again := ensure(t, tp, s, now())
				require.Empty(t, again.Changes)
				require.Empty(t, diff(s, again.State), "up undoes nothing")
				require.Empty(t, diff(s, reloaded(t, s)), "nothing is lost in the store")
				if i == 0 {
					continue
				}
				previous := states[i-1]
				require.NoError(t, prove(tp, &State{CAs: previous.CAs, Leaves: s.Leaves}, now()), "who trusts as before")
				require.NoError(t, prove(tp, &State{CAs: s.CAs, Leaves: previous.Leaves}, now()), "who presents as before")
				require.Subset(t, publics(t, previous), signers(t, s), "tokens that are new")
				require.Subset(t, publics(t, s), signers(t, previous), "tokens that are old")
			}
			require.Equal(t, []Phase{PhaseNone, PhaseDistribute, PhaseSwitch, PhaseNone}, phases)
			for _, other := range AllRotations() {
				if other != r {
					require.Equal(t, PhaseNone, other.Phase(states[1]), other)
				}
			}
		})
	}
}

// reloaded is a state after it was in a store.
func reloaded(t *testing.T, s *State) *State {
	t.Helper()
	out, err := Decode(Encode(s))
	require.NoError(t, err)
	out.Leaves = s.Leaves
	return out
}

func publics(t *testing.T, s *State) []string {
	t.Helper()
	var out []string
	for block, rest := pem.Decode(s.ServiceAccount.Public); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, string(block.Bytes))
	}
	return out
}

func signers(t *testing.T, s *State) []string {
	t.Helper()
	public, err := publicOf(s.ServiceAccount.Key)
	require.NoError(t, err)
	block, _ := pem.Decode(public)
	return []string{string(block.Bytes)}
}

func TestRotationReissuesWhatTheAuthoritySigned(t *testing.T) {
	for _, ca := range topology.CAs {
		t.Run(string(ca), func(t *testing.T) {
			tp, s := issued(t, full)
			states := whole(t, tp, RotationOf(ca), s)
			for _, c := range Table(tp) {
				k := c.Key()
				require.Equal(t, s.Leaves[k], states[1].Leaves[k], "only trust is distributed")
				same := cmp.Equal(s.Leaves[k], states[2].Leaves[k])
				require.Equal(t, c.CA != ca, same, c.Secret)
				require.Equal(t, states[2].Leaves[k].Key, states[3].Leaves[k].Key, "the last phase issues nothing")
				require.Equal(t, certOf(t, states[2].Leaves[k]), certOf(t, states[3].Leaves[k]))
			}
			require.NotEqual(t, s.CAs[ca].Key, states[2].CAs[ca].Key)
			require.Equal(t, Authority{Pair: states[1].CAs[ca].Next}, states[3].CAs[ca], "nothing of the previous one is left")
			require.NotContains(t, string(states[2].CAs[ca].Trusted()), "PRIVATE")
			require.Equal(t, "demo-"+string(ca)+"-ca-20261120", certOf(t, states[3].CAs[ca].Pair).Subject.CommonName)
		})
	}
}

// verify is a client that knows one bundle only, and a server that it calls.
func verify(p Pair, trusted []byte, host string) error {
	certs, _, err := parsePair(p)
	if err != nil {
		return err
	}
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	for _, c := range certs[1:] {
		chain.AddCert(c)
	}
	_, err = certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, DNSName: host, CurrentTime: now()})
	return err
}

func TestOldKubeconfigsWorkUntilTheRotationIsFinished(t *testing.T) {
	tp, s := issued(t, full)
	server, client := find(t, tp, "demo-front-proxy-main-server"), find(t, tp, "demo-kubeconfig-admin")
	old, user := s.CAs[topology.ServerCA].Trusted(), s.Leaves[client.Key()]
	works := func(s *State) []bool {
		return []bool{
			verify(s.Leaves[server.Key()], old, "kcp.example.com") == nil,
			len(certOf(t, user).Subject.CommonName) > 0 && clientIsTrusted(t, s, user),
		}
	}
	states := whole(t, tp, RotationOf(topology.ServerCA), s)
	states = append(states, whole(t, tp, RotationOf(topology.ClientCA), states[3])[1:]...)
	var server_, client_ []bool
	for _, s := range states {
		server_, client_ = append(server_, works(s)[0]), append(client_, works(s)[1])
	}
	require.Equal(t, []bool{true, true, true, false, false, false, false}, server_, "who trusts the old server CA only")
	require.Equal(t, []bool{true, true, true, true, true, true, false}, client_, "the clients with a certificate of the previous client CA")
}

func clientIsTrusted(t *testing.T, s *State, p Pair) bool {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CAs[topology.ClientCA].Trusted())
	_, err := certOf(t, p).Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

func TestAnAuthorityThatIsNotCrossSignable(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Authority)
		want   string
	}{
		"no key": {func(a *Authority) { a.Key = nil }, "its private key is not in the PKI store"},
		"path length": {func(a *Authority) {
			old, err := a.parse(topology.ServerCA)
			require.NoError(t, err)
			serial, err := newSerial()
			require.NoError(t, err)
			a.Cert, err = old.crossSign(old)
			require.NoError(t, err, serial)
		}, "its certificate does not allow it to sign authorities (path length 0)"},
	} {
		t.Run(name, func(t *testing.T) {
			tp, s := issued(t, "")
			a := s.CAs[topology.ServerCA]
			tc.change(&a)
			s.CAs[topology.ServerCA] = a
			require.EqualError(t, a.CrossSignable(), tc.want)
			states := whole(t, tp, RotationOf(topology.ServerCA), s)
			require.Empty(t, states[2].CAs[topology.ServerCA].Cross)
			require.NoError(t, prove(tp, states[2], now()))
			require.Error(t, verify(states[2].Leaves[find(t, tp, "demo-root-server").Key()], a.Cert, "localhost"))
		})
	}
}

func TestRotateToWhatWasBrought(t *testing.T) {
	tp, s := issued(t, "")
	_, theirs := issued(t, "")
	r, err := RotationOf(topology.ClientCA).To(theirs, now())
	require.NoError(t, err)
	require.Equal(t, Authority{Pair: theirs.CAs[topology.ClientCA].Pair}, whole(t, tp, r, s)[3].CAs[topology.ClientCA])

	_, err = r.Advance(tp, theirs, PhaseNone, now())
	require.ErrorContains(t, err, "rotate the client CA: the new authority is the current one")
	s.CAs[topology.EtcdCA] = theirs.CAs[topology.ClientCA]
	_, err = r.Advance(tp, s, PhaseNone, now())
	require.ErrorContains(t, err, "the client CA and the etcd CA are the same certificate")
	a := theirs.CAs[topology.ClientCA]
	a.Key = nil
	theirs.CAs[topology.ClientCA] = a
	_, err = RotationOf(topology.ClientCA).To(theirs, now())
	require.ErrorContains(t, err, "the new client CA has no private key")
	_, err = RotationOf(topology.ServerCA).To(theirs, now().Add(87601*time.Hour))
	require.ErrorContains(t, err, "the server CA: it expired on")
}

func TestAdvanceRefuses(t *testing.T) {
	tp, s := issued(t, "")
	_, err := RotationOf(topology.ServerCA).Advance(tp, s, PhaseSwitch, now())
	require.ErrorIs(t, err, ErrChanged)
	_, err = RotationOf(topology.ServerCA).Advance(tp, &State{}, PhaseNone, now())
	require.ErrorContains(t, err, "rotate the server CA: the server CA does not exist")
	_, err = KeyRotation{}.Advance(tp, &State{}, PhaseNone, now())
	require.ErrorContains(t, err, "rotate the service-account key: the key does not exist")
}

func TestEarlierServiceAccountKeysStay(t *testing.T) {
	tp, s := issued(t, "")
	first := signers(t, s)
	for range 2 {
		s = whole(t, tp, KeyRotation{}, s)[3]
	}
	require.Len(t, publics(t, s), 3)
	require.Subset(t, publics(t, s), first)
	n, err := EarlierKeys(s)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	dropped, err := DropEarlierKeys(s)
	require.NoError(t, err)
	require.Equal(t, signers(t, s), publics(t, dropped))
	require.Equal(t, dropped.ServiceAccount, ensure(t, tp, dropped, now()).State.ServiceAccount)
}

func TestEnsureRenewsWhatIsAskedFor(t *testing.T) {
	tp, s := issued(t, full)
	r, err := Ensure(tp, s, Options{Now: now(), Renew: func(c Cert) bool { return c.Component == "root-shard" }})
	require.NoError(t, err)
	require.Len(t, r.Changes, len(CertsOf(tp, tp.Root())))
	require.False(t, slices.ContainsFunc(r.Changes, func(c Change) bool { return c.Component != "root-shard" || c.Reason != "its renewal was requested" }))
	require.NoError(t, prove(tp, r.State, now().Add(time.Hour)))
}

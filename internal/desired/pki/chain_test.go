package pki

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
)

// upper is an authority above those of a setup. cert-manager gives its authorities the same fields: no path length, and
// no extended usages.
type upper struct {
	*authority
	pair Pair
}

func newUpper(t testing.TB, cn string, by *upper, alg v1alpha1.KeyAlgorithm) *upper {
	t.Helper()
	return newUpperNamed(t, pkix.Name{CommonName: cn}.ToRDNSequence(), by, alg)
}

func newUpperNamed(t testing.TB, name pkix.RDNSequence, by *upper, alg v1alpha1.KeyAlgorithm) *upper {
	t.Helper()
	subject, err := asn1.Marshal(name)
	require.NoError(t, err)
	key, err := newKey(alg)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), RawSubject: subject, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now().Add(-time.Hour), NotAfter: now().Add(87600 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	encoded, err := encodeKey(key)
	require.NoError(t, err)
	return &upper{
		&authority{cert: cert, key: key},
		Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}), Key: encoded},
	}
}

// underOneRoot is what kcp-operator has: all authorities but that of etcd are intermediates under one root.
func underOneRoot(t testing.TB, chain bool) (root *upper, s *State) {
	t.Helper()
	alg := map[bool]v1alpha1.KeyAlgorithm{true: v1alpha1.KeyECDSAP256, false: v1alpha1.KeyRSA2048}[chain]
	root = newUpper(t, "root-ca", nil, alg)
	middle := newUpper(t, "middle-ca", root, alg)
	s = &State{CAs: map[topology.CA]Authority{}}
	for _, ca := range []topology.CA{topology.ServerCA, topology.ClientCA, topology.RequestHeaderCA} {
		by := root
		if chain {
			by = middle
		}
		pair := newUpper(t, string(ca)+"-ca", by, alg).pair
		if chain {
			pair.Cert = slices.Concat(pair.Cert, middle.pair.Cert, root.pair.Cert)
		}
		s.CAs[ca] = Authority{Pair: pair}
	}
	return root, s
}

func TestIntermediateAuthorities(t *testing.T) {
	for name, chain := range map[string]bool{"under the root": false, "with a chain": true} {
		t.Run(name, func(t *testing.T) {
			tp, _ := issued(t, full)
			root, theirs := underOneRoot(t, chain)
			imported, _, err := Import(&State{}, theirs, now())
			require.NoError(t, err)
			s := ensure(t, tp, imported, now()).State
			require.NoError(t, prove(tp, s, now()))
			require.Empty(t, ensure(t, tp, s, now()).Changes, "nothing changes again")
			require.Empty(t, diff(s, reloaded(t, s)))

			server := s.Leaves[find(t, tp, "demo-front-proxy-main-server").Key()]
			require.NoError(t, verify(server, root.pair.Cert, "kcp.example.com"), "who trusts the root only")
			require.NoError(t, verify(server, s.CAs[topology.ServerCA].Trusted(), "kcp.example.com"), "who trusts the intermediate only")
			for _, ca := range topology.CAs {
				require.Equal(t, 1, countPEM(s.CAs[ca].Trusted()), "the chain of the %s CA is not trusted", ca)
			}
			require.Equal(t, BundleFingerprints(s.CAs[topology.ClientCA].Trusted()).All(), s.Fingerprints()["client-ca"].All(),
				"live objects and the store have the same fingerprints")
		})
	}
}

// A server accepts no certificate of another trust domain, even if it comes with the chain to the root that both have.
func TestIntermediateAuthoritiesDoNotAcceptEachOther(t *testing.T) {
	tp, _ := issued(t, full)
	_, s := underOneRoot(t, true)
	s = ensure(t, tp, s, now()).State
	for _, c := range Table(tp) {
		pair := s.Leaves[c.Key()]
		pair.Cert = slices.Concat(pair.Cert, s.CAs[c.CA].Cert)
		for _, by := range []topology.CA{topology.ClientCA, topology.RequestHeaderCA} {
			require.Equal(t, c.CA == by, acceptsAny(t, s.CAs[by].Trusted(), pair), "%s of the %s CA by the %s CA", c.Secret, c.CA, by)
		}
	}
}

// acceptsAny reports whether anchors verify a chain, for any usage.
func acceptsAny(t testing.TB, anchors []byte, p Pair) bool {
	t.Helper()
	certs, _, err := parsePair(p)
	require.NoError(t, err)
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(anchors)
	for _, c := range certs[1:] {
		chain.AddCert(c)
	}
	_, err = certs[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: chain, CurrentTime: now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err == nil
}

func TestRotationOfAnIntermediateAuthority(t *testing.T) {
	tp, _ := issued(t, full)
	root, s := underOneRoot(t, true)
	s = ensure(t, tp, s, now()).State
	states := whole(t, tp, RotationOf(topology.ServerCA), s)
	key := find(t, tp, "demo-front-proxy-main-server").Key()
	for i, want := range []bool{true, true, true, false} {
		for who, anchors := range map[string][]byte{"the root": root.pair.Cert, "the intermediate": s.CAs[topology.ServerCA].Trusted()} {
			require.Equal(t, want, verify(states[i].Leaves[key], anchors, "kcp.example.com") == nil, "who trusts only %s, in state %d", who, i)
		}
		require.NoError(t, prove(tp, states[i], now()))
		require.Empty(t, ensure(t, tp, states[i], now()).Changes)
	}
	require.Equal(t, 1, countPEM(states[3].Leaves[key].Cert), "nothing of the previous chain is left")
	next, err := RotationOf(topology.ServerCA).To(s, now())
	require.NoError(t, err)
	_, self := issued(t, full)
	states = whole(t, tp, next, self)
	require.NoError(t, verify(states[3].Leaves[key], root.pair.Cert, "kcp.example.com"), "a rotation to an intermediate authority")
	require.NoError(t, verify(states[2].Leaves[key], self.CAs[topology.ServerCA].Cert, "kcp.example.com"))
}

// Who trusts only the previous authority finds the next one by the bytes of its name, whatever made it.
func TestRotationToAnAuthorityOfAnotherTool(t *testing.T) {
	tp, before := issued(t, "")
	key := find(t, tp, "demo-front-proxy-main-server").Key()
	cn := func(value any) pkix.RDNSequence {
		return pkix.RDNSequence{{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: value}}}
	}
	for name, subject := range map[string]pkix.RDNSequence{
		"a name of several parts": pkix.Name{
			CommonName: "kcp server CA", Organization: []string{"Corp"}, Country: []string{"DE"},
		}.ToRDNSequence(),
		"a common name as OpenSSL encodes it": cn(asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte("kcp server CA")}),
		"the name of the previous one":        certOf(t, before.CAs[topology.ServerCA].Pair).Subject.ToRDNSequence(),
	} {
		t.Run(name, func(t *testing.T) {
			theirs := newUpperNamed(t, subject, nil, v1alpha1.KeyECDSAP256).pair
			r, err := RotationOf(topology.ServerCA).To(
				&State{CAs: map[topology.CA]Authority{topology.ServerCA: {Pair: theirs}}}, now())
			require.NoError(t, err)
			states := whole(t, tp, r, before)
			for i, want := range []bool{true, true, true, false} {
				err := verify(states[i].Leaves[key], before.CAs[topology.ServerCA].Cert, "localhost")
				require.Equal(t, want, err == nil, "who trusts only the previous authority, in state %d: %v", i, err)
				require.NoError(t, prove(tp, states[i], now()))
			}
			require.NoError(t, verify(states[3].Leaves[key], theirs.Cert, "localhost"))
		})
	}
}

func TestAuthoritiesAboveOthersAreRefused(t *testing.T) {
	root, s := underOneRoot(t, true)
	with := func(ca topology.CA, change func(*Authority)) *State {
		out := s.clone()
		a := out.CAs[ca]
		change(&a)
		out.CAs[ca] = a
		return out
	}
	bundled := func(a *Authority) { a.Bundle = root.pair.Cert }
	for name, tc := range map[string]struct {
		from *State
		want string
	}{
		"the root signs":            {with(topology.RequestHeaderCA, func(a *Authority) { a.Pair = root.pair }), `servers that trust the requestheader CA would accept every certificate of the server CA, because "root-ca" is above it`},
		"the root is trusted":       {with(topology.ClientCA, bundled), `servers that trust the client CA would accept every certificate of the server CA, because "root-ca" is above it`},
		"another CA is trusted too": {with(topology.RequestHeaderCA, func(a *Authority) { a.Bundle = firstCert(s.CAs[topology.ClientCA].Cert) }), `servers that trust the requestheader CA would accept every certificate of the client CA, because "client-ca" is above it`},
		"not a chain":               {with(topology.ServerCA, func(a *Authority) { a.Cert = slices.Concat(firstCert(a.Cert), s.CAs[topology.ClientCA].Cert) }), `the server CA: "client-ca", certificate 2 of its file, has not signed the one before it, "server-ca"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Import(&State{}, tc.from, now())
			require.EqualError(t, err, tc.want)
			require.Equal(t, clierr.BadInput, clierr.Code(err))
			require.NotEmpty(t, clierr.Hint(err))
		})
	}
	_, _, err := Import(&State{}, with(topology.ServerCA, bundled), now())
	require.NoError(t, err, "clients may trust the root: the other authorities sign no serving certificates")
}

// The certificates above the authority that a user supplied with a serving certificate are served as they are.
func TestChainKeepsWhatWasBrought(t *testing.T) {
	tp, _ := issued(t, "")
	root, s := underOneRoot(t, true)
	s = ensure(t, tp, s, now()).State
	key := find(t, tp, "demo-root-server").Key()
	imported := s.Leaves[key]
	imported.Cert = slices.Concat([]byte("a comment\n"), imported.Cert, root.pair.Cert)
	s.Leaves[key] = imported
	require.Equal(t, imported, ensure(t, tp, s, now()).State.Leaves[key])
}

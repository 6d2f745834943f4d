package pki

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

func TestEnsureIssuesTheTable(t *testing.T) {
	for _, alg := range []v1alpha1.KeyAlgorithm{v1alpha1.KeyECDSAP256, v1alpha1.KeyECDSAP384, v1alpha1.KeyRSA2048} {
		t.Run(string(alg), func(t *testing.T) {
			yaml := full
			if alg == v1alpha1.KeyRSA2048 { // slow to make
				yaml = "spec:\n"
			}
			tp := topologytest.Build(t, withSpec(yaml, "pki: {keyAlgorithm: "+string(alg)+"}"))
			r := ensure(t, tp, &State{}, now())
			require.Equal(t, topology.CAs, r.CAs)
			require.Equal(t, len(Table(tp)), r.Created())
			serials := map[string]bool{}
			for _, c := range Table(tp) {
				cert := certOf(t, r.State.Leaves[c.Key()])
				require.Empty(t, c.differs(cert), c.Secret)
				require.Equal(t, alg, algorithmOf(cert.PublicKey))
				require.Equal(t, now().Add(-5*time.Minute), cert.NotBefore)
				require.Equal(t, now().Add(c.Validity), cert.NotAfter)
				require.False(t, cert.IsCA)
				wantUsage := x509.KeyUsageDigitalSignature
				if cert.PublicKeyAlgorithm == x509.RSA {
					wantUsage |= x509.KeyUsageKeyEncipherment
				}
				require.Equal(t, wantUsage, cert.KeyUsage)
				require.Equal(t, "demo-"+string(c.CA)+"-ca", cert.Issuer.CommonName)
				require.Greater(t, cert.SerialNumber.BitLen(), 64)
				require.False(t, serials[cert.SerialNumber.String()])
				serials[cert.SerialNumber.String()] = true
			}
			require.NoError(t, prove(tp, r.State, now()))
		})
	}
}

func TestEnsureMakesAuthorities(t *testing.T) {
	_, s := issued(t, full)
	for _, ca := range topology.CAs {
		cert := certOf(t, s.CAs[ca].Pair)
		require.NoError(t, cert.CheckSignatureFrom(cert), "self-signed")
		require.Equal(t, "demo-"+string(ca)+"-ca", cert.Subject.CommonName)
		require.True(t, cert.IsCA && cert.BasicConstraintsValid && cert.MaxPathLen == 1)
		require.Equal(t, x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign|x509.KeyUsageCRLSign, cert.KeyUsage)
		require.Equal(t, now().Add(87600*time.Hour), cert.NotAfter)
		require.Equal(t, now().Add(-5*time.Minute), cert.NotBefore)
	}
	key, err := parseKey(s.ServiceAccount.Key)
	require.NoError(t, err)
	block, rest := pem.Decode(s.ServiceAccount.Public)
	pub, err := x509.ParsePKIXPublicKey(block.Bytes)
	require.NoError(t, err)
	require.True(t, samePublicKey(pub, key.Public()))
	require.Empty(t, rest)
}

func TestEnsureKeepsWhatFits(t *testing.T) {
	tp, s := issued(t, full)
	before := s.clone()
	r := ensure(t, tp, s, now().Add(time.Hour))
	require.Empty(t, r.Changes)
	require.Empty(t, r.CAs)
	require.Equal(t, len(Table(tp)), r.Kept)
	require.Empty(t, diff(before, r.State))
	require.Equal(t, "demo-kubeconfig-admin", r.NextExpiryName)
	require.Equal(t, now().Add(48*time.Hour), r.NextExpiry)
}

func TestEnsureRenews(t *testing.T) {
	const secret = "demo-root-server"
	for name, tc := range map[string]struct {
		change func(*Cert)
		break_ func(*State, LeafKey)
		at     time.Duration
		yaml   string
		reason string
	}{
		"host added":         {change: func(c *Cert) { c.Hosts = c.Hosts[1:] }, reason: "its hosts changed: +demo-root"},
		"host removed":       {change: func(c *Cert) { c.Hosts = append(c.Hosts, "old") }, reason: "its hosts changed: -old"},
		"common name":        {change: func(c *Cert) { c.CN = "x" }, reason: "its common name changed: +demo-root -x"},
		"organization":       {change: func(c *Cert) { c.Orgs = []string{"x"} }, reason: "its organizations changed: -x"},
		"usage":              {change: func(c *Cert) { c.Usages = []Usage{ClientAuth} }, reason: "its usages changed: +server auth -client auth"},
		"other authority":    {change: func(c *Cert) { c.CA = topology.ClientCA }, reason: "it was not signed by the current server CA"},
		"too long a life":    {change: func(c *Cert) { c.Validity *= 2 }, reason: "it is valid for longer than 8760h0m0s"},
		"missing":            {break_: func(s *State, k LeafKey) { delete(s.Leaves, k) }, reason: "it is missing"},
		"unreadable":         {break_: func(s *State, k LeafKey) { s.Leaves[k] = Pair{Cert: []byte("x")} }, reason: "no PEM certificate"},
		"key of another":     {break_: swapKey, reason: "the private key does not belong to the certificate"},
		"expires in 30 days": {at: (8760 - 29*24) * time.Hour, reason: "it expires on 2027-11-20"},
		"expired":            {at: 9000 * time.Hour, reason: "it expired on 2027-11-20"},
		"clock went back":    {at: -time.Hour, reason: "it is not valid before 2026-11-20T17:40:12Z"},
		"key algorithm": {yaml: withSpec(full, "pki: {keyAlgorithm: ECDSA-P384}"),
			reason: "its key algorithm is ECDSA-P256, and the setup file has ECDSA-P384"},
	} {
		t.Run(name, func(t *testing.T) {
			tp, s := issued(t, full)
			if tc.change != nil {
				reissue(t, tp, s, secret, tc.change, now())
			}
			key := find(t, tp, secret).Key()
			if tc.break_ != nil {
				tc.break_(s, key)
			}
			if tc.yaml != "" {
				tp = topologytest.Build(t, tc.yaml)
			}
			at := now().Add(tc.at)
			if tc.at < 0 { // the authorities are older
				for ca, a := range s.CAs {
					s.CAs[ca] = older(t, tp.Setup.Spec.PKI.KeyAlgorithm, a)
				}
				s.Leaves = ensure(t, tp, s, now()).State.Leaves
			}
			old := s.Leaves[key]
			r := ensure(t, tp, s, at)
			i := slices.IndexFunc(r.Changes, func(c Change) bool { return c.Secret == secret })
			require.GreaterOrEqual(t, i, 0)
			require.Equal(t, tc.reason, r.Changes[i].Reason)
			require.Equal(t, name != "missing", r.Changes[i].Renewed)
			require.Equal(t, old, s.Leaves[key], "the given state stays as it is")
			require.NotEqual(t, old, r.State.Leaves[key])
			require.Empty(t, diff(s.CAs, r.State.CAs), "authorities are never touched")
			require.NoError(t, prove(tp, r.State, at))
			require.Empty(t, ensure(t, tp, r.State, at).Changes, "once")
		})
	}
}

func swapKey(s *State, k LeafKey) {
	p := s.Leaves[k]
	p.Key = s.CAs[topology.ClientCA].Key
	s.Leaves[k] = p
}

// older is an authority that was made a day earlier.
func older(t *testing.T, alg v1alpha1.KeyAlgorithm, a Authority) Authority {
	t.Helper()
	serial, err := newSerial()
	require.NoError(t, err)
	a.Pair, err = selfSign(request{
		cn: certOf(t, a.Pair).Subject.CommonName, algorithm: alg, serial: serial,
		notBefore: now().Add(-24 * time.Hour), notAfter: now().Add(87600 * time.Hour),
	})
	require.NoError(t, err)
	return a
}

func TestEnsureRenewsShortLivedLate(t *testing.T) {
	tp, s := issued(t, full)
	require.Empty(t, ensure(t, tp, s, now().Add(30*time.Hour)).Changes)
	r := ensure(t, tp, s, now().Add(34*time.Hour))
	require.Len(t, r.Changes, 1)
	require.Equal(t, "demo-kubeconfig-admin", r.Changes[0].Secret)
}

func TestEnsureCutsLivesToTheAuthority(t *testing.T) {
	tp := topologytest.Build(t, "spec: {pki: {caValidity: 9000h}}")
	s := ensure(t, tp, &State{}, now()).State
	at := now().Add(8500 * time.Hour)
	r := ensure(t, tp, s, at)
	require.Equal(t, len(Table(tp)), r.Renewed())
	require.Equal(t, now().Add(9000*time.Hour), r.NextExpiry)
	key := find(t, tp, "demo-root-server").Key()
	require.Equal(t, now().Add(9000*time.Hour), certOf(t, r.State.Leaves[key]).NotAfter)
	require.Empty(t, ensure(t, tp, r.State, at).Changes, "it does not retry")
}

func TestEnsureRefusesAuthorities(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*State)
		at     time.Duration
		want   string
	}{
		"expired":       {at: 87601 * time.Hour, want: "the server CA: it expired on 2036-11-17"},
		"not yet valid": {at: -time.Hour, want: "the server CA: it is not valid before 2026-11-20T17:40:12Z"},
		"lost": {change: func(s *State) { delete(s.CAs, topology.ClientCA) },
			want: "the client CA is lost: demo-root-client was issued with it"},
		"service account lost": {change: func(s *State) { s.ServiceAccount = ServiceAccount{} },
			want: "the service-account key is lost"},
		"key of another": {change: func(s *State) {
			s.CAs[topology.EtcdCA] = Authority{Pair: Pair{Cert: s.CAs[topology.EtcdCA].Cert, Key: s.CAs[topology.ClientCA].Key}}
		}, want: "the etcd CA: the private key does not belong to the certificate"},
		"one for two": {change: func(s *State) { s.CAs[topology.RequestHeaderCA] = s.CAs[topology.ClientCA] },
			want: "the client CA and the requestheader CA are the same certificate"},
		"no authority": {change: func(s *State) {
			s.CAs[topology.EtcdCA] = Authority{Pair: s.Leaves[LeafKey{"default", "demo-root-server"}]}
		},
			want: `the etcd CA: the certificate "demo-root" cannot sign other certificates`},
		"garbage": {change: func(s *State) { s.CAs[topology.EtcdCA] = Authority{Pair: Pair{Cert: []byte("x")}} }, want: "the etcd CA: no PEM certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			tp, s := issued(t, "")
			if tc.change != nil {
				tc.change(s)
			}
			_, err := Ensure(tp, s, Options{Now: now().Add(tc.at)})
			require.ErrorContains(t, err, tc.want)
			require.NotEmpty(t, clierr.Hint(err))
		})
	}
}

func TestEnsureUsesImportedAuthorities(t *testing.T) {
	_, theirs := issued(t, "")
	tp := topologytest.Build(t, "")
	imported := &State{CAs: map[topology.CA]Authority{topology.ClientCA: theirs.CAs[topology.ClientCA]}}
	r := ensure(t, tp, imported, now())
	require.Equal(t, []topology.CA{topology.ServerCA, topology.RequestHeaderCA, topology.EtcdCA}, r.CAs)
	require.Equal(t, theirs.CAs[topology.ClientCA], r.State.CAs[topology.ClientCA])
	require.NoError(t, prove(tp, r.State, now()))

	keyless := r.State.CAs[topology.ClientCA]
	keyless.Key = nil
	r.State.CAs[topology.ClientCA] = keyless
	require.Empty(t, ensure(t, tp, r.State, now()).Changes, "it verifies")
	delete(r.State.Leaves, find(t, tp, "demo-root-client").Key())
	_, err := Ensure(tp, r.State, Options{Now: now()})
	require.ErrorContains(t, err, "demo-root-client must be issued, because it is missing, but the PKI store has no private key of the client CA")
	_, err = Mint(r.State, MintSpec{CN: CNSelf, Validity: time.Hour}, now())
	require.ErrorContains(t, err, "has no private key of the")
}

// Without the key of an authority, its certificates come from the user. Each is used while it is valid, and the error
// has the reason for which one cannot be used.
func TestCertificatesOfAKeylessAuthority(t *testing.T) {
	tp := topologytest.Build(t, "")
	year := find(t, tp, "demo-root-server").Validity
	for name, tc := range map[string]struct {
		change func(*Cert)
		alg    v1alpha1.KeyAlgorithm
		at     time.Time
		want   string
	}{
		"it expires soon":       {at: now().Add(24*time.Hour - year)},
		"it is valid for years": {change: func(c *Cert) { c.Validity *= 3 }},
		"another key":           {alg: v1alpha1.KeyRSA2048},
		"another host": {change: func(c *Cert) { c.Hosts = append(c.Hosts, "more.example.com") },
			want: "because its hosts changed: -more.example.com, but the PKI store has no private key of the server CA"},
		"it has expired": {at: now().Add(-2 * year), want: "because it expired on"},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := issued(t, "")
			c := find(t, tp, "demo-root-server")
			key, at := c.Key(), cmp.Or(tc.at, now())
			if tc.change != nil {
				tc.change(&c)
			}
			a, err := loadAuthority(s, topology.ServerCA, now())
			require.NoError(t, err)
			s.Leaves[key], err = a.issue(c.request(cmp.Or(tc.alg, v1alpha1.KeyECDSAP256), big.NewInt(1), at))
			require.NoError(t, err)
			require.Len(t, ensure(t, tp, s, now()).Changes, 1, "with the key, it is renewed")
			keyless := s.CAs[topology.ServerCA]
			keyless.Key = nil
			s.CAs[topology.ServerCA] = keyless
			r, err := Ensure(tp, s, Options{Now: now()})
			if tc.want != "" {
				require.ErrorContains(t, err, "demo-root-server must be issued, "+tc.want)
				return
			}
			require.NoError(t, err)
			require.Empty(t, r.Changes)
			require.NoError(t, prove(tp, r.State, now()))
		})
	}
}

func TestEnsureKeepsOldServiceAccountKeys(t *testing.T) {
	tp, s := issued(t, "")
	_, next := issued(t, "")
	old := s.ServiceAccount.Public
	s.ServiceAccount.Key = next.ServiceAccount.Key
	r := ensure(t, tp, s, now())
	require.Equal(t, slices.Concat(next.ServiceAccount.Public, old), r.State.ServiceAccount.Public)
	require.Equal(t, r.State.ServiceAccount, ensure(t, tp, r.State, now()).State.ServiceAccount)
}

func TestMint(t *testing.T) {
	tp, s := issued(t, full)
	p, err := Mint(s, MintSpec{CN: CNSelf, Orgs: []string{GroupMasters}, Algorithm: v1alpha1.KeyECDSAP256, Validity: time.Hour}, now())
	require.NoError(t, err)
	info, err := Inspect(p.Cert)
	require.NoError(t, err)
	require.Empty(t, diff(Info{
		CN: "kcpctl", Orgs: []string{"system:masters"}, Issuer: caName(tp, topology.ClientCA), Usages: []string{"client auth"},
		Algorithm: v1alpha1.KeyECDSAP256, Serial: info.Serial, NotBefore: now().Add(-backdate), NotAfter: now().Add(time.Hour),
	}, info))
	_, err = Mint(&State{}, MintSpec{}, now())
	require.ErrorContains(t, err, "the client CA does not exist")
}

func TestInspectRefusesWhatIsNoCertificate(t *testing.T) {
	_, s := issued(t, "")
	_, err := Inspect(s.CAs[topology.ServerCA].Key)
	require.ErrorContains(t, err, "no PEM certificate")
	require.False(t, bytes.Contains([]byte(err.Error()), s.CAs[topology.ServerCA].Key))
}

// On request, lost and expired authorities are replaced, and only those. What is trusted besides stays.
func TestEnsureReplaces(t *testing.T) {
	tp, s := issued(t, full)
	_, other := issued(t, "")
	client := s.CAs[topology.ClientCA]
	client.Bundle = other.CAs[topology.ClientCA].Cert
	s.CAs[topology.ClientCA] = client
	delete(s.CAs, topology.EtcdCA)
	s.ServiceAccount = ServiceAccount{}
	_, err := Ensure(tp, s, Options{Now: now()})
	require.ErrorContains(t, err, "the etcd CA is lost")
	require.Contains(t, clierr.Hint(err), "--replace-authorities")
	r, err := Ensure(tp, s, Options{Now: now(), Replace: true})
	require.NoError(t, err)
	require.Equal(t, []topology.CA{topology.EtcdCA}, r.CAs)
	require.Equal(t, s.CAs[topology.ServerCA], r.State.CAs[topology.ServerCA])
	require.NotEmpty(t, r.State.ServiceAccount.Key)
	require.NoError(t, prove(tp, r.State, now()))

	later := now().Add(11 * 365 * 24 * time.Hour)
	_, err = Ensure(tp, r.State, Options{Now: later})
	require.ErrorContains(t, err, "it expired on")
	require.Contains(t, clierr.Hint(err), "--replace-authorities")
	renewed, err := Ensure(tp, r.State, Options{Now: later, Replace: true})
	require.NoError(t, err)
	require.Equal(t, topology.CAs, renewed.CAs)
	require.Equal(t, client.Bundle, renewed.State.CAs[topology.ClientCA].Bundle)
	require.NoError(t, prove(tp, renewed.State, later))
}

func TestEnsureKeepsAnIdentity(t *testing.T) {
	tp, s := issued(t, "")
	s.Installation = Installation{}
	was := Installation{ID: "demo-x7k2m9qd", EtcdPrefix: "/demo"}
	r, err := Ensure(tp, s, Options{Now: now(), Installation: was})
	require.NoError(t, err)
	require.Equal(t, was, r.State.Installation)
}

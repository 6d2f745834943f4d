package pki

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// full has one of everything, on two clusters.
const full = `spec:
  version: v0.32.3
  external: {hostname: kcp.example.com, port: 8443}
  clusters: [{name: eu, namespace: kcp}, {name: us, namespace: kcp-us, domain: us.local}]
  encryption: {}
  etcd: {managed: {replicas: 3}}
  cacheServer: {cluster: eu, url: "https://cache.example.com:6443", etcd: {managed: {}}}
  rootShard: {cluster: eu, url: "https://root.example.com:6443"}
  shards:
  - {name: alpha, cluster: eu, url: "https://alpha.example.com:6443", etcd: {embedded: {}}}
  - {name: beta, cluster: us, url: "https://beta.example.com:6443", virtualWorkspaceURL: "https://beta-vw.example.com"}
  frontProxies: [{name: main, cluster: eu}]
  virtualWorkspaces: [{name: extra, cluster: eu, shard: alpha, url: "https://alpha-vw.example.com:6443"}]
  kubeconfigs:
  - {name: admin, target: {frontProxy: main}, user: kcp-admin, groups: ["system:kcp:admin"], validity: 48h}
  - {name: ops, target: {shard: beta}, user: ops, groups: [a, b], clusterRoles: [view]}
`

// withSpec adds a line to the spec of a setup file.
func withSpec(yaml, more string) string {
	return strings.Replace(yaml, "spec:\n", "spec:\n  "+more+"\n", 1)
}

func now() time.Time { return testutil.Start() }

func ensure(t testing.TB, tp *topology.Topology, s *State, at time.Time) *Result {
	t.Helper()
	r, err := Ensure(tp, s, Options{Now: at})
	require.NoError(t, err)
	return r
}

// issued is a topology with all its certificates.
func issued(t testing.TB, yaml string) (*topology.Topology, *State) {
	t.Helper()
	tp := topologytest.Build(t, yaml)
	return tp, ensure(t, tp, &State{}, now()).State
}

func certOf(t testing.TB, p Pair) *x509.Certificate {
	t.Helper()
	certs, _, err := parsePair(p)
	require.NoError(t, err)
	return certs[0]
}

// find is a row of the table.
func find(t testing.TB, tp *topology.Topology, secret string) Cert {
	t.Helper()
	table := Table(tp)
	i := slices.IndexFunc(table, func(c Cert) bool { return c.Secret == secret })
	require.GreaterOrEqual(t, i, 0, secret)
	return table[i]
}

// reissue replaces a certificate by one that the changed row describes, signed by the authority of the row.
func reissue(t testing.TB, tp *topology.Topology, s *State, secret string, change func(*Cert), at time.Time) {
	t.Helper()
	c := find(t, tp, secret)
	key := c.Key()
	change(&c)
	a, err := loadAuthority(s, c.CA, now())
	require.NoError(t, err)
	serial, err := newSerial()
	require.NoError(t, err)
	s.Leaves[key], err = a.issue(c.request(tp.Setup.Spec.PKI.KeyAlgorithm, serial, at))
	require.NoError(t, err)
}

// shards is a setup with n shards besides the root shard.
func shards(n int) string {
	var b strings.Builder
	b.WriteString("spec:\n  cacheServer: {}\n  shards:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: s%d}\n", i)
	}
	return b.String()
}

func shardsLabel(n int) string { return fmt.Sprintf("%dshards", n) }

// diff compares bytes as a whole: element by element they take most of a test's time.
func diff(want, got any) string { return cmp.Diff(want, got, cmp.Comparer(bytes.Equal)) }

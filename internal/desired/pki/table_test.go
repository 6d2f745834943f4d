package pki

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// The golden is the review of every identity in a setup: who is whom, by whose signature, for what, for how long.
func TestTable(t *testing.T) {
	tp := topologytest.Build(t, full)
	var out bytes.Buffer
	for _, c := range tp.Components {
		fmt.Fprintf(&out, "%s reads %v\n", c.ID(), tp.Bundles(c))
		for _, cert := range CertsOf(tp, c) {
			fmt.Fprintf(&out, "  %s/%s: %s CA, %q in %q, %q, %s\n", cert.Cluster, cert.Secret, cert.CA, cert.CN, cert.Orgs,
				cert.Usages, cert.Validity)
			for _, h := range cert.Hosts {
				fmt.Fprintf(&out, "    %s\n", h)
			}
		}
	}
	testutil.Golden(t, "table.txt", out.Bytes())
}

func TestTableFollowsTheRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		version       string
		mounts, cache bool
	}{
		"oldest":            {version: "v0.28.0"},
		"cache needs certs": {version: "v0.29.2", cache: true},
		"mounts backported": {version: "v0.31.6", cache: true, mounts: true},
		"mounts forgotten":  {version: "v0.32.2", cache: true},
		"newest":            {version: "v0.32.3", cache: true, mounts: true},
	} {
		t.Run(name, func(t *testing.T) {
			tp := topologytest.Build(t, "spec: {version: "+tc.version+", featureGates: {WorkspaceMounts: true}, cacheServer: {}, shards: [{name: a}]}")
			var mounts []topology.ID
			for _, c := range Table(tp) {
				if c.Name == topology.CertMountsProxy {
					mounts = append(mounts, c.Component)
				}
			}
			var want []topology.ID
			if tc.mounts {
				want = []topology.ID{"root-shard", "shard/a"}
			}
			require.Equal(t, want, mounts)
			require.Equal(t, tc.cache, len(tp.Bundles(tp.Cache())) == 1)
			require.Equal(t, tc.mounts, len(tp.Bundles(tp.OfKind(topology.FrontProxy)[0])) == 3)
		})
	}
}

// A component has all certificates that its connections demand, with all usages: no certificate lacks a subject.
func TestCertsFollowTheConnections(t *testing.T) {
	tp := topologytest.Build(t, full)
	for _, c := range tp.Components {
		var want, got []string
		for _, x := range tp.Credentials(c) {
			want = append(want, fmt.Sprint(x.Name, x.CA, x.Serves, x.Dials))
		}
		for _, cert := range CertsOf(tp, c) {
			got = append(got, fmt.Sprint(cert.Name, cert.CA, slices.Contains(cert.Usages, ServerAuth), slices.Contains(cert.Usages, ClientAuth)))
			require.NotEmpty(t, cert.CN)
		}
		require.ElementsMatch(t, want, got, c.ID())
	}
}

func TestTableKeysAreUnique(t *testing.T) {
	seen := map[LeafKey]topology.ID{}
	for _, c := range Table(topologytest.Build(t, full)) {
		require.NotContains(t, seen, c.Key())
		seen[c.Key()] = c.Component
	}
}

func TestTableOfThisMachine(t *testing.T) {
	tp := topologytest.BuildLocal(t, full)
	for _, c := range Table(tp) {
		require.Empty(t, c.Cluster)
		require.NotEqual(t, topology.EtcdCA, c.CA, "%s: every etcd is embedded here", c.Secret)
		if c.CA == topology.ServerCA {
			require.Equal(t, []string{"localhost", "127.0.0.1", "::1"}, c.Hosts)
		}
	}
	r := ensure(t, tp, &State{}, now())
	require.NoError(t, prove(tp, r.State, now()))
}

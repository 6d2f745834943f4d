package topology_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/testutil"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// The golden is the review of what must be reachable, and why.
func TestRemoteAddresses(t *testing.T) {
	var b strings.Builder
	for _, a := range topologytest.Build(t, everything).RemoteAddresses() {
		optional := ""
		if a.Optional {
			optional = " (optional)"
		}
		fmt.Fprintf(&b, "%s -> %s at %s, trusting %q%s\n  %s\n", a.From.Name, a.To(), a.Address, a.Trust, optional, a.Reason())
	}
	testutil.Golden(t, "remote.txt", []byte(b.String()))
}

func addresses(all []*topology.RemoteAddress) []string {
	var out []string
	for _, a := range all {
		out = append(out, a.From.Name+" "+a.To()+" "+a.Address)
	}
	return out
}

// Where components dial only Services of their own place, everything is known.
func TestRemoteAddressesOfOnePlace(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want []string
	}{
		"Services only": {"spec: {shards: [{name: alpha}], cacheServer: {}}\n", nil},
		"an external hostname, which only mounted workspaces use from inside": {
			"spec: {external: {hostname: kcp.example.com}, featureGates: {WorkspaceMounts: true}}\n", []string{"default front-proxy/main kcp.example.com:6443"},
		},
		"a base URL, which all components dial, also those next to the shard": {
			"spec: {shards: [{name: alpha, url: \"https://alpha.example.com\"}]}\n",
			[]string{"default shard/alpha alpha.example.com:443"},
		},
		"an external etcd": {
			"spec: {rootShard: {etcd: {external: {endpoints: [\"https://a.example.com:2379\", \"https://b.example.com:2379\"], tlsSecret: x}}}}\n",
			[]string{"default external etcd of root-shard a.example.com:2379", "default external etcd of root-shard b.example.com:2379"},
		},
		"an issuer, which shards dial only if they authenticate tokens": {
			"spec: {authentication: {oidc: {issuerURL: \"https://login.example.com/dex\", clientID: kcp}}}\n",
			[]string{"default issuer of front-proxy/main login.example.com:443"},
		},
		"issuers, with the address of their discovery document": {
			"spec: {authentication: {mode: Everywhere, config: {jwt: [{issuer: {url: \"https://a.example.com\", discoveryURL: \"https://b.example.com:8443/d\", " +
				"audiences: [kcp]}, claimMappings: {username: {claim: sub, prefix: \"\"}}}]}}}\n",
			[]string{"default issuer of root-shard b.example.com:8443"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := topologytest.Build(t, tc.spec).RemoteAddresses()
			require.Equal(t, tc.want, addresses(all))
			for _, a := range all {
				require.Equal(t, a.Address == "kcp.example.com:6443" || a.External == "issuer", a.Optional)
			}
		})
	}
	require.Empty(t, topologytest.BuildLocal(t, everything).RemoteAddresses())
}

// Every place has to reach each address once, however many components of it need it.
func TestRemoteAddressesAreUnique(t *testing.T) {
	var b strings.Builder
	b.WriteString("spec:\n  external: {hostname: kcp.example.com}\n  clusters: [{name: eu, context: eu}, {name: us, context: us}, {name: asia, context: asia}]\n" +
		"  rootShard: {cluster: eu, url: \"https://root.example.com:6443\"}\n  frontProxies: [{name: main, cluster: eu}]\n  shards:\n")
	for i := range 30 {
		fmt.Fprintf(&b, "  - {name: s%d, cluster: %s, url: \"https://s%d.example.com:6443\"}\n", i, []string{"eu", "us", "asia"}[i%3], i)
	}
	got := addresses(topologytest.Build(t, b.String()).RemoteAddresses())
	require.Len(t, got, 3*31+2, "each of three places reaches 31 shards, and two the front-proxy of the other one")
	seen := map[string]bool{}
	for _, a := range got {
		require.False(t, seen[a], a)
		seen[a] = true
	}
}

// Every connection to a component elsewhere says what it is for: only then its address is checked.
func TestConnectionsAcrossPlacesHaveAPurpose(t *testing.T) {
	top := topologytest.Build(t, everything)
	for _, e := range top.Edges() {
		for _, id := range e.Clients {
			for _, s := range e.Servers {
				client, server := top.Component(id), top.Component(s.Component)
				if client != nil && client.Kind.Runs() && client.Cluster.Name != server.Cluster.Name {
					require.NotEmpty(t, e.What, "%s dials %s", id, s)
				}
			}
		}
	}
}

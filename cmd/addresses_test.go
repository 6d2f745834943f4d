package cmd

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/cmd/ui"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// assigning is a runtime whose clusters have assigned addresses.
type assigning struct {
	run.Runtime
	live map[topology.ID]run.Assigned
}

func (a assigning) Addresses(context.Context, []*topology.Component) (map[topology.ID]run.Assigned, error) {
	return a.live, nil
}

const assignedText = topologytest.Header + `spec:
  external: {hostname: kcp.example.com}
  shards:
  - {name: alpha, url: auto, expose: NodePort}
  - {name: beta, url: auto, expose: LoadBalancer}
  frontProxies:
  - {name: main, expose: LoadBalancer}
  - {name: side, expose: LoadBalancer, external: {hostname: side.example.com}}
`

// names are the addresses of the names that exist.
type names map[string][]string

func (n names) lookup(_ context.Context, host string) ([]string, error) {
	if addresses, ok := n[host]; ok {
		return addresses, nil
	}
	return nil, errors.New("no such host")
}

// Only records that do not exist yet are printed, as far as this machine sees.
func TestRecordsThatExist(t *testing.T) {
	main := []string{"kcp.example.com.", "A", "203.0.113.7", "(front-proxy/main)"}
	side := []string{"side.example.com.", "CNAME", "lb.example.net", "(front-proxy/side)"}
	both := [][]string{main, side}
	for name, tc := range map[string]struct {
		dns  names
		want [][]string
	}{
		"none":               {nil, both},
		"the address":        {names{"kcp.example.com": {"203.0.113.9", "203.0.113.7"}}, [][]string{side}},
		"another address":    {names{"kcp.example.com": {"203.0.113.9"}}, both},
		"the name":           {names{"side.example.com": {"198.51.100.1"}, "lb.example.net": {"198.51.100.2", "198.51.100.1"}}, [][]string{main}},
		"another name":       {names{"side.example.com": {"198.51.100.1"}, "lb.example.net": {"198.51.100.2"}}, both},
		"a name without one": {names{"side.example.com": {"198.51.100.1"}}, both},
	} {
		s := &session{topology: topology.Build(topologytest.Setup(t, assignedText)), runtime: assigning{live: map[topology.ID]run.Assigned{
			"front-proxy/main": {Hosts: []string{"203.0.113.7"}}, "front-proxy/side": {Hosts: []string{"lb.example.net"}},
		}}}
		found, err := addressesOf(t.Context(), s, tc.dns.lookup)
		require.NoError(t, err)
		require.Equal(t, tc.want, found.records, name)
	}
}

// Assigned addresses are printed as far as they are known, and the DNS records for names.
func TestAddresses(t *testing.T) {
	s := &session{
		topology: topology.BuildAt(topologytest.Setup(t, assignedText), topology.Addresses{"shard/alpha": {Host: "192.0.2.4", Port: 31000}}),
		runtime: assigning{live: map[topology.ID]run.Assigned{
			"front-proxy/main": {Hosts: []string{"203.0.113.7"}},
			"front-proxy/side": {Reason: "Service demo-front-proxy-side has no load balancer yet"},
		}},
	}
	found, err := addressesOf(t.Context(), s, names(nil).lookup)
	require.NoError(t, err)
	require.Equal(t, [][]string{{"shard/alpha", "https://192.0.2.4:31000"}}, found.assigned, "that of beta is not known")
	require.Equal(t, [][]string{{"kcp.example.com.", "A", "203.0.113.7", "(front-proxy/main)"}}, found.records)
	require.Equal(t, [][]string{{"side.example.com", "Service demo-front-proxy-side has no load balancer yet"}}, found.missing)
	var out bytes.Buffer
	found.print(&ui.Stream{Writer: &out})
	require.Equal(t, `
Addresses that the clusters have assigned:
  shard/alpha   https://192.0.2.4:31000

Create these DNS records, unless they exist:
  kcp.example.com.   A   203.0.113.7   (front-proxy/main)

DNS records that need an address first (kcpctl up prints them again):
  side.example.com   Service demo-front-proxy-side has no load balancer yet
`, out.String())
}

func TestNoAddresses(t *testing.T) {
	s := &session{topology: topologytest.Build(t, "")}
	found, err := addressesOf(t.Context(), s, names(nil).lookup)
	require.NoError(t, err, "the runtime is not asked")
	var out bytes.Buffer
	found.print(&ui.Stream{Writer: &out})
	require.Empty(t, out.String())
}

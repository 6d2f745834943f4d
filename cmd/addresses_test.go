package cmd

import (
	"bytes"
	"context"
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

// Assigned addresses are printed as far as they are known, and the DNS records for names.
func TestAddresses(t *testing.T) {
	s := &session{
		topology: topology.BuildAt(topologytest.Setup(t, assignedText), topology.Addresses{"shard/alpha": {Host: "192.0.2.4", Port: 31000}}),
		runtime: assigning{live: map[topology.ID]run.Assigned{
			"front-proxy/main": {Hosts: []string{"203.0.113.7"}},
			"front-proxy/side": {Reason: "Service demo-front-proxy-side has no load balancer yet"},
		}},
	}
	found, err := addressesOf(t.Context(), s)
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
	found, err := addressesOf(t.Context(), s)
	require.NoError(t, err, "the runtime is not asked")
	var out bytes.Buffer
	found.print(&ui.Stream{Writer: &out})
	require.Empty(t, out.String())
}

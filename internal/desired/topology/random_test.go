package topology_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/dag"
	"github.com/kcpctl/kcpctl/internal/testutil/topologytest"
)

// In any setup, components can start one after the other in their order, and their certificates contain all hosts at
// which they are reached.
func TestAnySetupHoldsTogether(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		text := topologytest.Random(rnd)
		for name, top := range map[string]*topology.Topology{"clusters": topologytest.Build(t, text), "local": topologytest.BuildLocal(t, text)} {
			t.Run(fmt.Sprintf("%d %s", seed, name), func(t *testing.T) {
				holdsTogether(t, top)
				if t.Failed() {
					t.Log(text)
				}
			})
		}
	}
}

func holdsTogether(t *testing.T, top *topology.Topology) {
	t.Helper()
	needs, before, objects := map[topology.ID][]topology.ID{}, map[topology.ID]bool{}, map[string]topology.ID{}
	for _, c := range top.Components {
		for _, n := range c.Needs {
			require.True(t, before[n], "%s comes before %s, which it needs", c.ID(), n)
		}
		require.False(t, before[c.ID()], "two are called %s", c.ID())
		before[c.ID()], needs[c.ID()] = true, c.Needs
		for _, n := range c.Awaits {
			require.Contains(t, c.Needs, n, "what %s awaits", c.ID())
		}
		require.Same(t, c, top.Component(c.ID()))
		key := c.Cluster.Name + "/" + c.Object()
		require.Empty(t, objects[key], "object %s", key)
		objects[key] = c.ID()
		if c.IsShard() {
			require.NotNil(t, top.Component(c.FrontProxy))
			serving := c
			if c.VirtualWorkspaces != "" {
				serving = top.Component(c.VirtualWorkspaces)
			}
			require.Contains(t, serving.Hosts(), host(t, c.VirtualWorkspaceURL))
			require.Contains(t, top.Component(c.FrontProxy).Hosts(), host(t, c.FrontProxyURL))
		}
		if c.URL != "" {
			require.Contains(t, c.Hosts(), host(t, c.URL))
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(c.Hosts()))), len(c.Hosts()), "no host twice")
		}
	}
	kinds := topology.Kinds()
	for _, c := range top.Components {
		for _, n := range c.Needs {
			require.Less(t, slices.Index(kinds, n.Kind()), slices.Index(kinds, c.Kind), "%s needs %s", c.ID(), n)
		}
	}
	for _, e := range top.Edges() {
		require.NotEmpty(t, e.Clients)
		require.NotEmpty(t, e.Servers)
		for _, s := range e.Servers {
			server := top.Component(s.Component)
			require.NotEmpty(t, s.Host)
			require.Contains(t, server.Hosts(), s.Host)
			require.True(t, e.Accept == topology.ClientCA && server.Kind == topology.CacheServer || slices.Contains(top.Bundles(server), e.Accept),
				"%s does not read the bundle of the %s CA", s.Component, e.Accept)
		}
		for _, id := range e.Clients {
			if id != topology.Self {
				require.Contains(t, top.Bundles(top.Component(id)), e.Trust, id)
			}
		}
	}
	_, err := dag.Run(t.Context(), needs, cmp.Compare[topology.ID], 1, func(context.Context, topology.ID) error { return nil })
	require.NoError(t, err)
}

func host(t *testing.T, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	return u.Hostname()
}

package main

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The scheduler of the product cannot tell the simulated kcp from a real one: it decides about what is in it, and
// syncers see the result.
func TestFleet(t *testing.T) {
	ctx := t.Context()
	kcp := newFleetKCP(ctx, 3)
	server := httptest.NewServer(kcp)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	require.NoError(t, kcp.at(server.URL))
	numbers := func(all map[string]int) func(string) int { return func(name string) int { return all[name] } }
	require.NoError(t, kcp.fill(ctx, numbers(map[string]int{"workspaces": 2, "each": 40}), ""))
	f := newFleetScheduler(server.URL, 3)
	go func() { _ = f.scheduler.Run(ctx) }()
	go f.control(ctx)
	require.Eventually(t, func() bool { s := kcp.tell(); return s.Decided == s.Deployments }, time.Minute, 10*time.Millisecond)
	require.True(t, f.tell(true).Known)
	deployments := kcp.tell().Deployments
	require.NoError(t, kcp.create(ctx, numbers(map[string]int{"workspaces": 2, "rate": 20, "seconds": 1}), "crowd"))
	// On a slow machine, not all of them are created within the second.
	state := kcp.tell()
	created, n := state.Deployments-deployments, len(state.Latencies["crowd"])
	require.Positive(t, created)
	require.Eventually(t, func() bool {
		n += len(kcp.tell().Latencies["crowd"])
		return n >= created
	}, time.Minute, 10*time.Millisecond)
}

func TestFleetPaths(t *testing.T) {
	for path, want := range map[string]string{
		fleetExport + "/clusters/*/apis/apps/v1/deployments":                          "{apis/apps/v1/deployments *  } ",
		fleetExport + "/clusters/1a/apis/apps/v1/namespaces/shop/deployments/web":     "{apis/apps/v1/deployments 1a shop web} ",
		fleetExport + "/clusters/1a/apis/apps/v1/namespaces/x/deployments/y/status":   "{apis/apps/v1/deployments 1a x y} status",
		fleetExport + "/clusters/1a/api/v1/namespaces/shop":                           "{api/v1/namespaces 1a  shop} ",
		"/clusters/root:compute/apis/apis.kcp.io/v1alpha1/apiexportendpointslices":    "{apis/apis.kcp.io/v1alpha1/apiexportendpointslices root:compute  } ",
		fleetExport + "/clusters/1a/apis/apis.kcp.io/v1alpha2/apibindings/cluster-c1": "{apis/apis.kcp.io/v1alpha2/apibindings 1a  cluster-c1} ",
	} {
		k, subresource, ok := parseFleet(path)
		require.True(t, ok)
		require.Equal(t, want, fmt.Sprint(k, " ", subresource), path)
	}
}

// A list that is longer than its limit goes on, and a watch has what has changed since.
func TestFleetPagesAndWatches(t *testing.T) {
	kcp := newFleetKCP(t.Context(), 0)
	for i := range 5 {
		require.NoError(t, kcp.put(fleetKey{fleetConfigMaps, "1a", "shop", fmt.Sprint(i)}, "", map[string]any{"kind": "ConfigMap"}))
	}
	first, token, version := kcp.list(fleetConfigMaps, "*", 3, "")
	rest, end, _ := kcp.list(fleetConfigMaps, "*", 3, token)
	require.Len(t, append(first, rest...), 5)
	require.Empty(t, end)
	k := fleetKey{fleetConfigMaps, "1a", "shop", "0"}
	require.NoError(t, kcp.put(k, "", map[string]any{"data": map[string]any{"a": "b"}}))
	_, err := kcp.remove(k)
	require.NoError(t, err)
	var kinds []string
	for _, e := range kcp.watch(fleetConfigMaps, version).take() {
		kinds = append(kinds, e.kind)
	}
	require.Equal(t, []string{"MODIFIED", "DELETED"}, kinds)
	require.Nil(t, kcp.get(k))
}

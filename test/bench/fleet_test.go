package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kcpctl/kcpctl/internal/workload/server/connect"
	"github.com/kcpctl/kcpctl/internal/workload/server/controller"
)

// The controller of the product cannot tell the simulated kcp from a real one: it publishes the APIs of the clusters,
// decides about what is in workspaces, and syncers see the result.
func TestFleet(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	kcp, err := newFleetKCP(ctx, 3)
	require.NoError(t, err)
	require.NoError(t, kcp.fill(2, 40))
	ended := make(chan error, 1)
	go func() {
		ended <- controller.Run(ctx, controller.Options{
			KCP: &rest.Config{Host: kcp.server.URL}, Workspace: fleetCompute, WorkspaceType: "workload", Holder: "test", Now: time.Now,
			APIs: []schema.GroupResource{{Group: "apps", Resource: "deployments"}}, Connect: connect.Content,
		})
	}()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	require.Eventually(t, func() bool { s := kcp.tell(); return s.Decided == s.Deployments }, time.Minute, 10*time.Millisecond)
	require.True(t, kcp.tell().Known)
	deployments := kcp.tell().Deployments
	require.NoError(t, kcp.create(ctx, 2, 20, 1, "crowd"))
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
	kcp, err := newFleetKCP(t.Context(), 1)
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, kcp.put(fleetKey{fleetConfigMaps, "1a", "shop", fmt.Sprint(i)}, "", map[string]any{"kind": "ConfigMap"}))
	}
	first, token, version := kcp.list(fleetConfigMaps, anyWorkspace, 3, "")
	rest, end, _ := kcp.list(fleetConfigMaps, anyWorkspace, 3, token)
	require.Len(t, append(first, rest...), 5)
	require.Empty(t, end)
	k := fleetKey{fleetConfigMaps, "1a", "shop", "0"}
	require.NoError(t, kcp.put(k, "", map[string]any{"data": map[string]any{"a": "b"}}))
	_, err = kcp.remove(k)
	require.NoError(t, err)
	var kinds []string
	own := fleetKey{fleetConfigMaps, fleetCompute, "default", "other"}
	require.NoError(t, kcp.put(own, "", map[string]any{"kind": "ConfigMap"}))
	for _, e := range kcp.watch(fleetConfigMaps, anyWorkspace, version).take() {
		kinds = append(kinds, e.kind)
	}
	require.Equal(t, []string{"MODIFIED", "DELETED"}, kinds)
	require.Nil(t, kcp.get(k))
}

package kcp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/kcp"
	"github.com/kcpctl/kcpctl/internal/testutil/fakekcp"
)

const (
	exportSlices = "apiexportendpointslices"
	cachedSlices = "cachedresourceendpointslices"
)

// keptEndpoints look like alpha's, but are not.
var keptEndpoints = []fakekcp.Endpoint{
	{Server: "proxy", Resource: exportSlices, Cluster: "root", Slice: "tenancy", Manager: "root", URL: "https://h:1/services/tenancy"},
	{Server: "proxy", Resource: exportSlices, Cluster: "root", Slice: "tenancy", Manager: "alpha2", URL: "https://h:2/services/tenancy"},
	{Server: "proxy", Resource: exportSlices, Cluster: "one", Slice: "tenancy", Manager: "beta", URL: "https://h:3/services/tenancy"},
	{Server: "proxy", Resource: exportSlices, Cluster: "one", Slice: "widgets", Manager: "alpha", URL: "https://h:3/x", Updated: true},
	{Server: "proxy", Resource: cachedSlices, Cluster: "one", Slice: "maps", Manager: "beta", URL: "https://h:3/alpha"},
	{Server: "elsewhere", Resource: exportSlices, Cluster: "two", Slice: "tenancy", Manager: "alpha", URL: "https://h:3/services/tenancy"},
}

func removedEndpoints() []fakekcp.Endpoint {
	return []fakekcp.Endpoint{
		{Server: "proxy", Resource: exportSlices, Cluster: "root", Slice: "tenancy", Manager: "alpha", URL: "https://h:3/services/tenancy"},
		{Server: "proxy", Resource: exportSlices, Cluster: "two", Slice: "tenancy", Manager: "alpha", URL: "https://h:3/services/tenancy"},
		{Server: "proxy", Resource: cachedSlices, Cluster: "one", Slice: "maps", Manager: "alpha", URL: "https://h:3/maps"},
	}
}

func endpointNames(endpoints []fakekcp.Endpoint) []string {
	k := fakekcp.New(nil)
	k.PutEndpoints(endpoints...)
	return k.Endpoints()
}

func TestRemoveEndpoints(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		k.PutEndpoints(removedEndpoints()...)
		k.PutEndpoints(keptEndpoints...)
		n, err := c.CountEndpoints(t.Context(), "alpha")
		require.NoError(t, err)
		require.Equal(t, 3, n)

		n, err = c.RemoveEndpoints(t.Context(), "alpha")
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, endpointNames(keptEndpoints), k.Endpoints())
		require.Len(t, k.Requests(fakekcp.ApplySlice), 2, "no other slice is touched")

		n, err = c.RemoveEndpoints(t.Context(), "alpha")
		require.NoError(t, err)
		require.Zero(t, n)
		require.Len(t, k.Requests(fakekcp.ApplySlice), 2)
	})
}

// Two managers have applied the same URL: it stays as long as one of them has it.
func TestRemoveEndpointsLeavesASharedURL(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		shared := fakekcp.Endpoint{
			Server: "proxy", Resource: exportSlices, Cluster: "root", Slice: "tenancy", Manager: "beta", URL: "https://h:3/services/tenancy",
		}
		k.PutEndpoints(removedEndpoints()[0], shared)
		n, err := c.RemoveEndpoints(t.Context(), "alpha")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{shared.String()}, k.Endpoints())
	})
}

func TestRemoveEndpointsRefusesNames(t *testing.T) {
	for name, want := range map[string]string{
		"":      `invalid shard name ""`,
		"*":     `invalid shard name "*"`,
		"Alpha": `invalid shard name "Alpha"`,
		"root":  "refusing to remove the endpoints of shard root",
	} {
		t.Run(name, func(t *testing.T) {
			withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
				_, err := c.RemoveEndpoints(t.Context(), name)
				require.ErrorContains(t, err, want)
				require.Empty(t, k.Requests(""))
			})
		})
	}
}

func TestRemoveEndpointsStops(t *testing.T) {
	forbidden := fakekcp.Refuse(http.StatusForbidden, "Forbidden", "not you")
	for name, tc := range map[string]struct {
		setUp   func(k *fakekcp.Kcp)
		want    string
		applied int
	}{
		"when it may not apply": {
			func(k *fakekcp.Kcp) { k.Always(fakekcp.ApplySlice, forbidden) },
			"remove the endpoint of shard alpha from apiexportendpointslices.apis.kcp.io root:tenancy: not you", 1,
		},
		"when the endpoint stays": {
			func(k *fakekcp.Kcp) { k.Always(fakekcp.ApplySlice, anObject()) },
			"apiexportendpointslices.apis.kcp.io root:tenancy: https://h:3/services/tenancy was added again after it was removed: shard alpha may still be running", 1,
		},
		"when it may not list": {
			func(k *fakekcp.Kcp) { k.Always(fakekcp.ListSlices, forbidden) },
			"list apiexportendpointslices.apis.kcp.io: not you", 0,
		},
		"when it does not learn what there can be": {
			func(k *fakekcp.Kcp) { k.Always(fakekcp.ListSystemDefinitions, forbidden) },
			"list the definitions of kcp's APIs: not you", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
				k.PutEndpoints(removedEndpoints()[0])
				tc.setUp(k)
				_, err := c.RemoveEndpoints(t.Context(), "alpha")
				require.EqualError(t, err, tc.want)
				require.Len(t, k.Requests(fakekcp.ApplySlice), tc.applied)
			})
		})
	}
}

func anObject() fakekcp.Answer {
	return fakekcp.Answer{Code: http.StatusOK, Body: map[string]any{"apiVersion": "v1", "kind": "Anything", "metadata": map[string]any{"name": "x"}}}
}

// A slice may be deleted at any moment, and a shard need not serve every kind.
func TestRemoveEndpointsOfWhatIsGone(t *testing.T) {
	withKcp(t, func(t *testing.T, k *fakekcp.Kcp, c *kcp.Client) {
		notFound := fakekcp.Refuse(http.StatusNotFound, "NotFound", "not here")
		k.Always("list "+cachedSlices, notFound)
		k.PutEndpoints(removedEndpoints()[0])
		first := fakekcp.Slices(removedEndpoints()[0])
		k.Script(fakekcp.ListSlices, first, fakekcp.Slices())
		k.Script(fakekcp.ApplySlice, notFound)
		n, err := c.RemoveEndpoints(t.Context(), "alpha")
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

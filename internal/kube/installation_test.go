package kube

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/kube/cluster"
	"github.com/kcpctl/kcpctl/internal/kube/inventory"
	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// A root shard that the setup file places elsewhere is refused, also where the new place has components of the installation
// already: its lock, its authorities and its record are in the place that it has left.
func TestVerifyOwners(t *testing.T) {
	at := func(name, namespace string, uid types.UID) *cluster.Client {
		return &cluster.Client{Cluster: topology.Cluster{Name: name, Namespace: namespace}, KubeContext: name, UID: uid}
	}
	eu, us := at("eu", "kcp", "1"), at("us", "kcp", "2")
	inventoryOf := func(installation string, home *cluster.Client) *inventory.Inventory {
		i := &inventory.Inventory{}
		if installation != "" {
			i.Owner = inventory.Owner{Installation: installation, Home: inventory.PlacementOf(home)}
		}
		return i
	}
	for name, tc := range map[string]struct {
		home, other     *cluster.Client
		atHome, atOther *inventory.Inventory
		want            string
	}{
		"no inventory":               {eu, us, inventoryOf("", nil), inventoryOf("", nil), ""},
		"as it was":                  {eu, us, inventoryOf("demo-1", eu), inventoryOf("demo-1", eu), ""},
		"a new cluster":              {eu, us, inventoryOf("demo-1", eu), inventoryOf("", nil), ""},
		"the cluster has a new name": {at("europe", "kcp", "1"), us, inventoryOf("demo-1", eu), inventoryOf("demo-1", eu), ""},
		"its UID was not known":      {eu, us, inventoryOf("demo-1", at("eu", "kcp", "")), inventoryOf("demo-1", eu), ""},
		"moved to a new cluster":     {us, eu, inventoryOf("", nil), inventoryOf("demo-1", eu), "has its root shard on cluster eu"},
		"moved to one of its own":    {us, eu, inventoryOf("demo-1", eu), inventoryOf("demo-1", eu), "has its root shard on cluster eu"},
		"a place of another one":     {eu, us, inventoryOf("demo-1", eu), inventoryOf("demo-2", us), "of another installation"},
		"moved to another namespace": {at("eu", "new", "1"), eu, inventoryOf("demo-1", eu), inventoryOf("demo-1", eu), "has its root shard on cluster eu"},
	} {
		t.Run(name, func(t *testing.T) {
			if inventory.PlacementOf(tc.home).SamePlace(tc.atHome.Owner.Home) {
				tc.atHome.Record = &record.Record{Installation: tc.atHome.Owner.Installation}
			}
			i := &installation{topology: &topology.Topology{Name: "demo"}, clusters: &clusters{
				home: tc.home, current: []*cluster.Client{tc.home, tc.other},
			}}
			err := i.verifyOwners([]*clusterState{{Client: tc.home, inventory: tc.atHome}, {Client: tc.other, inventory: tc.atOther}})
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// A context that leads to another cluster than this machine knows is refused, unless it is accepted.
func TestVerifyKnownClusters(t *testing.T) {
	const path = "/api/v1/namespaces/kcp/secrets/demo-inventory"
	r, _ := scripted(t, map[string][]answer{"GET " + path: {{http.StatusOK,
		`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-inventory", "namespace": "kcp", "resourceVersion": "1"}}`}}})
	in, home := r.installation, r.clusters.home
	in.known = inventory.NewKnownClusters(t.TempDir(), "demo", t.Logf)
	home.UID = "uid-1"
	require.NoError(t, in.known.Remember(r.clusters.current))
	inv, err := in.inventories.Read(t.Context(), home)
	require.NoError(t, err)
	unknown, err := in.verify(t.Context(), inv)
	require.NoError(t, err)
	require.False(t, unknown)

	home.UID = "uid-2"
	_, err = in.verify(t.Context(), inv)
	require.ErrorContains(t, err, "(UID uid-1)")
	require.Contains(t, clierr.Hint(err), "--allow-other-cluster")
	in.allowOtherCluster = true
	unknown, err = in.verify(t.Context(), inv)
	require.NoError(t, err)
	require.True(t, unknown, "until it is recorded")
}

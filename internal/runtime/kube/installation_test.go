package kube

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

// A root shard that the setup file places elsewhere is refused, also where the new place has components of the
// installation already: its lock, its authorities and its record are in the place that it has left.
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
		"the record is lost":         {eu, us, inventoryOf("", nil), inventoryOf("demo-1", eu), "its record, which was there, does not exist any more"},
		"another home cluster":       {at("eu", "kcp", "9"), us, inventoryOf("", nil), inventoryOf("demo-1", eu), "with UID 1, and this one has UID 9"},
		"the record is restored":     {at("eu", "kcp", "9"), us, inventoryOf("demo-1", eu), inventoryOf("demo-1", eu), ""},
		"moved to another namespace": {at("eu", "new", "1"), eu, inventoryOf("demo-1", eu), inventoryOf("demo-1", eu), "has its root shard on cluster eu"},
	} {
		t.Run(name, func(t *testing.T) {
			if inventory.PlacementOf(tc.home).SameName(tc.atHome.Owner.Home) || inventory.PlacementOf(tc.home).SamePlace(tc.atHome.Owner.Home) {
				tc.atHome.Record = &record.Record{Installation: tc.atHome.Owner.Installation}
			}
			i := &installation{topology: &topology.Topology{Name: "demo"}, clusters: &clusters{
				home: tc.home, current: []*cluster.Client{tc.home, tc.other},
			}}
			err := i.verifyOwners([]*clusterState{{Client: tc.home, inventory: tc.atHome}, {Client: tc.other, inventory: tc.atOther}}, "")
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			i.allowLostRecord = "demo-1"
			err = i.verifyOwners([]*clusterState{{Client: tc.home, inventory: tc.atHome}, {Client: tc.other, inventory: tc.atOther}}, "")
			require.Equal(t, tc.atOther.Owner.Installation == "demo-1", err == nil, "it is for that installation only: %v", err)
		})
	}
}

// A place with a record is the home of an installation, also if that was installed with the same PKI and has the same ID.
func TestVerifyOwnersOfTwoHomes(t *testing.T) {
	state := func(name string, uid types.UID) *clusterState {
		cl := &cluster.Client{Cluster: topology.Cluster{Name: name, Namespace: "kcp"}, KubeContext: name, UID: uid}
		return &clusterState{Client: cl, inventory: &inventory.Inventory{
			Owner:  inventory.Owner{Installation: "demo-1", Home: inventory.PlacementOf(cl)},
			Record: &record.Record{Installation: "demo-1"},
		}}
	}
	eu, us := state("eu", "1"), state("us", "2")
	for _, allowed := range []string{"", "demo-1"} {
		i := &installation{topology: &topology.Topology{Name: "demo"}, allowLostRecord: allowed, clusters: &clusters{
			home: eu.Client, current: []*cluster.Client{eu.Client, us.Client},
		}}
		err := i.verifyOwners([]*clusterState{eu, us}, "")
		require.ErrorContains(t, err, `context us, namespace kcp has the root shard and the record of another kcp "demo"`)
	}
}

// A place whose cluster is another one now is still known, under a name of its own.
func TestAPlaceOnAnotherClusterIsAnotherPlace(t *testing.T) {
	now := &cluster.Client{Cluster: topology.Cluster{Name: "us", Namespace: "kcp"}, KubeContext: "us", UID: "22222222-aaaa"}
	i := &installation{clusters: &clusters{current: []*cluster.Client{now}}}
	for name, tc := range map[string]struct {
		was  inventory.Placement
		has  bool
		name string
	}{
		"the same":             {inventory.Placement{Name: "us", Namespace: "kcp", UID: "22222222-aaaa"}, true, ""},
		"its name has changed": {inventory.Placement{Name: "usa", Namespace: "kcp", UID: "22222222-aaaa"}, true, ""},
		"the UID is not known": {inventory.Placement{Name: "us", Namespace: "kcp"}, true, ""},
		"another cluster":      {inventory.Placement{Name: "us", Namespace: "kcp", UID: "11111111-bbbb"}, false, "us-11111111"},
		"another namespace":    {inventory.Placement{Name: "us", Namespace: "old", UID: "22222222-aaaa"}, false, "us"},
		"one that was left":    {inventory.Placement{Name: "eu", Namespace: "kcp", UID: "11111111-bbbb"}, false, "eu"},
		"renamed by a run":     {inventory.Placement{Name: "us-11111111", Namespace: "kcp", UID: "11111111-bbbb"}, false, "us-11111111"},
	} {
		require.Equal(t, tc.has, i.has(tc.was), name)
		if name, _ := i.previousName(tc.was); !tc.has {
			require.Equal(t, tc.name, name)
		}
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
	require.Contains(t, clierr.Hint(err), "--allow other-cluster")
	in.allowOtherCluster = true
	unknown, err = in.verify(t.Context(), inv)
	require.NoError(t, err)
	require.True(t, unknown, "until it is recorded")
}

// An inventory that was deleted by hand does not block a run where the home cluster has noted the installation.
func TestTheHomeClusterRemembersItsInstallation(t *testing.T) {
	at := func(name string, uid types.UID) *cluster.Client {
		return &cluster.Client{Cluster: topology.Cluster{Name: name, Namespace: "kcp"}, KubeContext: name, UID: uid}
	}
	eu, us := at("eu", "1"), at("us", "2")
	i := &installation{topology: &topology.Topology{Name: "demo"}, clusters: &clusters{home: eu, current: []*cluster.Client{eu, us}}}
	there := &inventory.Inventory{Owner: inventory.Owner{Installation: "demo-1", Home: inventory.PlacementOf(eu)}}
	states := []*clusterState{{Client: eu, inventory: &inventory.Inventory{}}, {Client: us, inventory: there}}
	require.NoError(t, i.verifyOwners(states, "demo-1"))
	require.ErrorContains(t, i.verifyOwners(states, "demo-2"), "its record, which was there, does not exist any more")
}

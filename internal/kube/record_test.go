package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/record"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// A root shard that the setup file places elsewhere is refused, also where the new place has components of the installation
// already: its lock, its authorities and its record are in the place that it has left.
func TestOneInstallation(t *testing.T) {
	at := func(cluster, namespace string, uid types.UID) *site {
		return &site{Cluster: topology.Cluster{Name: cluster, Namespace: namespace}, context: cluster, uid: uid, config: nil}
	}
	eu, us := at("eu", "kcp", "1"), at("us", "kcp", "2")
	inventoryOf := func(installation string, home *site) *inventory {
		i := &inventory{secret: &corev1.Secret{}}
		if installation != "" {
			i.secret.ResourceVersion = "1"
			i.owner = owner{Installation: installation, Home: home.placement()}
		}
		return i
	}
	for name, tc := range map[string]struct {
		home, other     *site
		atHome, atOther *inventory
		want            string
	}{
		"nothing is there":           {eu, us, inventoryOf("", nil), inventoryOf("", nil), ""},
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
			if tc.home.placement().place(tc.atHome.owner.Home) {
				tc.atHome.record = &record.Record{Installation: tc.atHome.owner.Installation}
			}
			r := &Runtime{topology: &topology.Topology{Name: "demo"}, home: tc.home, sites: []*site{tc.home, tc.other}}
			err := r.oneInstallation([]*survey{{site: tc.home, inventory: tc.atHome}, {site: tc.other, inventory: tc.atOther}})
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

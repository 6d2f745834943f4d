package kube

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

// Users who may write the inventory must not choose the kubeconfig, and with it the programs, that this machine uses.
func TestAKubeconfigThatOnlyTheInventoryNamesIsNotRead(t *testing.T) {
	client := func(kubeconfig string) *cluster.Client {
		return &cluster.Client{Cluster: topology.Cluster{Name: "us", Namespace: "kcp", Kubeconfig: kubeconfig}, KubeContext: "us", UID: "2"}
	}
	known := inventory.NewKnownClusters(t.TempDir(), "demo", func(format string, args ...any) { t.Logf(format, args...) })
	require.NoError(t, known.Remember([]*cluster.Client{client("/earlier")}))
	var read []string
	p := &previousClusters{
		installation: &installation{clusters: &clusters{current: []*cluster.Client{client("/of-the-file")}}, known: known},
		newClient: func(c topology.Cluster) (*cluster.Client, error) {
			read = append(read, c.Kubeconfig)
			return client(c.Kubeconfig), nil
		},
	}
	for _, kubeconfig := range []string{"", "/of-the-file", "/earlier"} {
		_, err := p.client(inventory.Placement{Name: "us", Kubeconfig: kubeconfig})
		require.NoError(t, err)
	}
	place := inventory.Placement{Name: "us", Kubeconfig: "/chosen"}
	_, err := p.client(place)
	require.ErrorIs(t, err, errOnlyInventory)
	require.ErrorContains(t, err, "/chosen")
	require.Equal(t, []string{"", "/of-the-file", "/earlier"}, read)

	err = p.mayForget(place, nil, err, true)
	require.ErrorContains(t, err, "whether cluster us is lost is not known")
	require.Contains(t, clierr.Hint(err), "if you trust the kubeconfig")
}

package kube

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

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

	now, err := p.sight(t.Context(), place, &inventory.Inventory{})
	require.NoError(t, err)
	err = now.mayForget(place)
	require.ErrorContains(t, err, "whether cluster us is lost is not known: this machine does not know it")
	require.Contains(t, clierr.Hint(err), "if you trust the kubeconfig")
}

// The inventory keeps the first name of a context. This machine knows under which name it has reached the cluster last.
func TestAContextThatWasRenamedLeadsToThePlace(t *testing.T) {
	known := inventory.NewKnownClusters(t.TempDir(), "demo", func(format string, args ...any) { t.Logf(format, args...) })
	client := func(context, uid string) *cluster.Client {
		return &cluster.Client{Cluster: topology.Cluster{Name: "us", Context: context, Namespace: "kcp"}, KubeContext: context, UID: types.UID(uid)}
	}
	require.NoError(t, known.Remember([]*cluster.Client{client("us-old", "2"), client("us-prod", "2"), client("other", "3")}))
	p := &previousClusters{
		installation: &installation{clusters: &clusters{}, known: known},
		newClient: func(c topology.Cluster) (*cluster.Client, error) {
			if c.Context == "us-old" {
				return nil, errors.New("context does not exist")
			}
			return client(c.Context, "2"), nil
		},
	}
	cl, err := p.client(inventory.Placement{Name: "us", Context: "us-old", Namespace: "kcp", UID: "2"})
	require.NoError(t, err)
	require.Equal(t, "us-prod", cl.KubeContext)
	_, err = p.client(inventory.Placement{Name: "us", Context: "us-old", Namespace: "kcp", UID: "4"})
	require.ErrorContains(t, err, "does not exist")
}

package setup

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// workspacesOf are the workspaces of a shard that the documentation promises.
var workspacesOf = map[v1alpha1.Size]int64{v1alpha1.SizeSmall: 200, v1alpha1.SizeMedium: 1000, v1alpha1.SizeLarge: 3500}

var sizedKinds = []topology.Kind{
	topology.RootShard, topology.Shard, topology.CacheServer, topology.FrontProxy, topology.VirtualWorkspaces, topology.Etcd,
}

// A larger size has no smaller figures, each kind has a row for each size, and a shard has memory for its workspaces.
func TestSizesGrow(t *testing.T) {
	require.Len(t, v1alpha1.Sizes, len(workspacesOf))
	before := v1alpha1.Size("")
	for _, size := range v1alpha1.Sizes {
		for _, k := range sizedKinds {
			less, more := resourcesOf(before, k), resourcesOf(size, k)
			for name, q := range less.Requests {
				require.LessOrEqual(t, q.Cmp(more.Requests[name]), 0, "%s %s %s", size, k, name)
			}
			require.Len(t, more.Limits, 1, "%s %s", size, k)
			limit := more.Limits.Memory()
			require.Positive(t, limit.Cmp(*more.Requests.Memory()), "%s %s", size, k)
			require.GreaterOrEqual(t, limit.Cmp(*less.Limits.Memory()), 0, "%s %s", size, k)
		}
		const mib = 1 << 20
		shard := resourcesOf(size, topology.Shard)
		require.GreaterOrEqual(t, shard.Requests.Memory().Value(), (512+5*workspacesOf[size])*mib, size)
		require.GreaterOrEqual(t, shard.Limits.Memory().Value(), (512+10*workspacesOf[size])*mib, size)
		v := volumeOf(size)
		require.Equal(t, size, v.size)
		quota, storage := resource.MustParse(v.quota), resource.MustParse(v.storage)
		require.Negative(t, quota.Cmp(storage), size)
		require.LessOrEqual(t, quota.Value(), int64(8192)*mib, "etcd recommends at most 8Gi")
		before = size
	}
}

// The table in the documentation is the table of the code.
func TestSizesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	row := func(title string, cell func(v1alpha1.Size) string) {
		text := "| " + title + " |"
		for _, size := range v1alpha1.Sizes {
			text += " " + cell(size) + " |"
		}
		require.Contains(t, string(page), "\n"+text+"\n")
	}
	for title, k := range map[string]topology.Kind{
		"shard": topology.Shard, "cache server": topology.CacheServer, "front-proxy": topology.FrontProxy,
		"server of virtual workspaces": topology.VirtualWorkspaces, "member of an etcd": topology.Etcd,
	} {
		row(title, func(size v1alpha1.Size) string {
			r := resourcesOf(size, k)
			return fmt.Sprintf("%s, %s, %s", r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Memory())
		})
	}
	row("quota and storage of an etcd", func(size v1alpha1.Size) string { return volumeOf(size).quota + ", " + volumeOf(size).storage })
	row("workspaces of a shard", func(size v1alpha1.Size) string { return fmt.Sprint(workspacesOf[size]) })
}

// Fields of the setup file take precedence over the size. A quota that does not fit into a volume is not a default.
func TestSizeIsADefault(t *testing.T) {
	s := parse(t, minimal+`spec:
  size: large
  etcd: {managed: {autoCompaction: 30m}}
  cacheServer: {}
  shards:
  - {name: alpha, resources: {requests: {memory: 3Gi}}, etcd: {managed: {resources: {}, storage: 9Gi}}}
  - {name: beta, etcd: {managed: {storage: 4Gi}}}
  - {name: gamma, etcd: {embedded: {}}}
`).Spec
	require.Equal(t, "36Gi", s.RootShard.Resources.Limits.Memory().String())
	require.Equal(t, "8Gi", s.CacheServer.Resources.Limits.Memory().String())
	root, alpha, beta := s.RootShard.Etcd.Managed, s.Shards[0].Etcd.Managed, s.Shards[1].Etcd.Managed
	require.Equal(t, "2Gi 32Gi 8Gi", fmt.Sprint(root.Resources.Requests.Memory(), root.Storage, root.Quota))
	require.Empty(t, s.Shards[0].Resources.Limits)
	require.Equal(t, "3Gi", s.Shards[0].Resources.Requests.Memory().String())
	require.Empty(t, alpha.Resources.Requests)
	require.Equal(t, "9Gi 8Gi", fmt.Sprint(alpha.Storage, alpha.Quota))
	require.Equal(t, "4Gi", beta.Storage.String())
	require.Nil(t, beta.Quota)
	require.Equal(t, "32Gi", s.Shards[2].Etcd.Embedded.Storage.String())

	shared := parse(t, minimal+"spec: {size: large, defaults: {resources: {requests: {cpu: 3}}}}\n").Spec
	require.Equal(t, "3", shared.RootShard.Resources.Requests.Cpu().String())
	require.Empty(t, shared.RootShard.Resources.Limits)
	require.Equal(t, "12Gi", shared.RootShard.Etcd.Managed.Resources.Limits.Memory().String(), "spec.defaults is not for etcd")
}

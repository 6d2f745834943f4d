package setup

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// need is the CPU and the memory that components of some kinds request by default, and the most memory that they may
// use. CPU has no limit, because it would slow servers down on nodes that have time for them.
type need struct {
	size                v1alpha1.Size
	kinds               []topology.Kind
	cpu, memory, atMost string
}

// needs is the table of resources. Without a size, components request enough to start and to serve a few workspaces.
// With a size, a shard requests 512Mi and 5Mi for each workspace, as load tests of kcp plan, and may use 10Mi for each,
// as they measure under load (kcp: test/load/Proposal.md, loadtest-report-apr-2026.md). The other figures are
// estimates, with more room the larger the setup. Agents, the controller of workloads and syncers are the same in all
// sizes.
func needs() []need {
	shards := []topology.Kind{topology.RootShard, topology.Shard}
	cache := []topology.Kind{topology.CacheServer}
	proxies := []topology.Kind{topology.FrontProxy}
	virtual := []topology.Kind{topology.VirtualWorkspaces}
	etcds := []topology.Kind{topology.Etcd}
	return []need{
		{"", shards, "100m", "512Mi", ""},
		{"", cache, "50m", "256Mi", ""},
		{"", slices.Concat(proxies, etcds), "50m", "128Mi", ""},
		{"", []topology.Kind{topology.Agent, topology.Workloads}, "50m", "128Mi", ""},
		{"", []topology.Kind{topology.Physical}, "50m", "64Mi", ""},
		{"", virtual, "100m", "256Mi", ""},
		{v1alpha1.SizeSmall, shards, "500m", "1536Mi", "3Gi"},
		{v1alpha1.SizeSmall, cache, "100m", "256Mi", "1Gi"},
		{v1alpha1.SizeSmall, proxies, "200m", "128Mi", "512Mi"},
		{v1alpha1.SizeSmall, virtual, "100m", "256Mi", "1Gi"},
		{v1alpha1.SizeSmall, etcds, "200m", "256Mi", "3Gi"},
		{v1alpha1.SizeMedium, shards, "1", "6Gi", "12Gi"},
		{v1alpha1.SizeMedium, cache, "250m", "1Gi", "4Gi"},
		{v1alpha1.SizeMedium, proxies, "500m", "256Mi", "1Gi"},
		{v1alpha1.SizeMedium, virtual, "250m", "1Gi", "4Gi"},
		{v1alpha1.SizeMedium, etcds, "500m", "1Gi", "6Gi"},
		{v1alpha1.SizeLarge, shards, "2", "18Gi", "36Gi"},
		{v1alpha1.SizeLarge, cache, "500m", "2Gi", "8Gi"},
		{v1alpha1.SizeLarge, proxies, "1", "1Gi", "4Gi"},
		{v1alpha1.SizeLarge, virtual, "500m", "3Gi", "12Gi"},
		{v1alpha1.SizeLarge, etcds, "1", "2Gi", "12Gi"},
	}
}

// volume is the size of the data of an etcd, and of the volume with the data, logs and snapshots.
type volume struct {
	size           v1alpha1.Size
	quota, storage string
}

// volumes is the table of volumes. The first row is for setups without a size: etcd has its own quota, 2Gi.
func volumes() []volume {
	return []volume{
		{"", "", "8Gi"},
		{v1alpha1.SizeSmall, "2Gi", "8Gi"},
		{v1alpha1.SizeMedium, "4Gi", "16Gi"},
		{v1alpha1.SizeLarge, "8Gi", "32Gi"}, // etcd recommends at most 8Gi
	}
}

// resourcesOf returns the default resources of a kind. A size that does not exist is reported later.
func resourcesOf(size v1alpha1.Size, k topology.Kind) *corev1.ResourceRequirements {
	all := needs()
	i := slices.IndexFunc(all, func(n need) bool { return n.size == size && slices.Contains(n.kinds, k) })
	if i < 0 {
		i = slices.IndexFunc(all, func(n need) bool { return slices.Contains(n.kinds, k) })
	}
	out := &corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(all[i].cpu), corev1.ResourceMemory: resource.MustParse(all[i].memory),
	}}
	if all[i].atMost != "" {
		out.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(all[i].atMost)}
	}
	return out
}

// volumeOf returns the default volume of an etcd.
func volumeOf(size v1alpha1.Size) volume {
	all := volumes()
	return all[max(0, slices.IndexFunc(all, func(v volume) bool { return v.size == size }))]
}

// quotaOf returns the default quota of an etcd, or nil if etcd decides.
func quotaOf(size v1alpha1.Size) *resource.Quantity {
	if q := volumeOf(size).quota; q != "" {
		return new(resource.MustParse(q))
	}
	return nil
}

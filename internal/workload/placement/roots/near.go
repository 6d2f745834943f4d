package roots

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// neighbour is another workload in a namespace that a workload wants to be near to, or not, or one of its leaves.
type neighbour struct {
	item
	// cluster is the cluster of a leaf. Empty: what was decided about the workload counts.
	cluster      string
	affine, anti bool
}

// neighbours returns the objects in the namespace of a workload that its hints select, except its own leaves.
func (v *view) neighbours(i item, hints schedule.Hints) (out []neighbour) {
	if hints.Affinity == nil && hints.AntiAffinity == nil {
		return nil
	}
	f := v.facts()
	for _, r := range f.Published.apis() {
		for _, o := range f.set.In(r, i.Cluster, i.Namespace) {
			all := labels.Set(o.GetLabels())
			n := neighbour{
				item: item{r, watch.KeyOf(o.Unstructured)}, cluster: all[api.LabelCluster],
				affine: hints.Affinity != nil && hints.Affinity.Matches(all),
				anti:   hints.AntiAffinity != nil && hints.AntiAffinity.Matches(all),
			}
			if n.Name = rootName(o.Unstructured); n.item != i && (n.affine || n.anti) {
				out = append(out, n)
			}
		}
	}
	return slices.Clip(out)
}

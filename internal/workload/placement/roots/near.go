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
func (s *Scheduler) neighbours(i item, hints schedule.Hints) (out []neighbour) {
	if hints.Affinity == nil && hints.AntiAffinity == nil {
		return nil
	}
	s.mu.Lock()
	resources := s.published.apis()
	s.mu.Unlock()
	for _, r := range resources {
		for _, o := range s.set.In(r, i.Cluster, i.Namespace) {
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

// near sets the clusters with objects that a workload wants to be near to, or not: leaves in the same namespace, and
// what was decided about other workloads there. The scheduler is locked.
func (s *Scheduler) near(all []neighbour, w *schedule.Workload) {
	w.Affine = map[string]bool{}
	w.AntiAffine = map[string]bool{}
	for _, n := range all {
		on := s.decided[n.item].clusters
		if n.cluster != "" {
			on = []string{n.cluster}
		}
		for _, c := range on {
			w.Affine[c] = w.Affine[c] || n.affine
			w.AntiAffine[c] = w.AntiAffine[c] || n.anti
		}
	}
}

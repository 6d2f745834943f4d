package roots

import (
	"k8s.io/apimachinery/pkg/labels"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// near sets the clusters with objects that a workload wants to be near to, or not: leaves in the same namespace, and
// what was decided about other workloads there. The scheduler is locked.
func (s *Scheduler) near(i item, w *schedule.Workload) {
	if w.Hints.Affinity == nil && w.Hints.AntiAffinity == nil {
		return
	}
	w.Affine = map[string]bool{}
	w.AntiAffine = map[string]bool{}
	for _, r := range s.published.apis() {
		for _, o := range s.set.In(r, i.Cluster, i.Namespace) {
			other := item{r, watch.KeyOf(o.Unstructured)}
			on := s.decided[other].clusters
			if c := o.GetLabels()[api.LabelCluster]; c != "" {
				other.Name, on = s.rootName(r, other.Key), []string{c}
			}
			if other == i {
				continue
			}
			for _, c := range on {
				if w.Hints.Affinity != nil && w.Hints.Affinity.Matches(labels.Set(o.GetLabels())) {
					w.Affine[c] = true
				}
				if w.Hints.AntiAffinity != nil && w.Hints.AntiAffinity.Matches(labels.Set(o.GetLabels())) {
					w.AntiAffine[c] = true
				}
			}
		}
	}
}

package roots

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

// recreates is the strategy of a Deployment whose pods of one version end before the pods of the next one start.
const recreates = "Recreate"

// workloadOf returns what is to be assigned. The error lists mistakes in annotations.
func (v *view) workloadOf(sub *subject) (schedule.Workload, error) {
	i := sub.item
	root := sub.root.Unstructured
	claims := v.claims(i, root)
	data := len(claims) > 0 || kinds.KeepsData(root)
	recreate, _, _ := unstructured.NestedString(root.Object, "spec", "strategy", "type")
	alone := recreate == recreates
	spread, _ := schedule.DefaultSpread(i.GroupResource(), data || alone)
	hints, err := schedule.ParseHints(root.GetAnnotations(), v.hintsOf(i), spread)
	if err == nil {
		err = schedule.CheckSpread(hints, i.GroupResource(), data)
	}
	w := schedule.Workload{
		Key: i.Key.String(), Workspace: i.Cluster, Hints: hints, Requests: requestsOf(root), Pinned: data,
		Finished: splitter.IsFinished(root),
		Alone:    alone || hints.Spread == schedule.Single,
		Goal:     schedule.GoalOf(root.GetAnnotations()[api.AnnotationExplain]),
	}
	w.Replicas = v.replicasOf(sub, w)
	w.Home = v.homeOf(sub, claims)
	if w.Home == "" && data && hints.Spread == schedule.Single {
		w.Home = sub.ends()
	}
	return w, err
}

func (v *view) homeOf(sub *subject, claims []item) string {
	for _, c := range sub.clusters {
		for _, claim := range claims {
			if _, ok := v.beside(claim, api.LeafName(claim.Name, c.Name)); ok {
				return c.Name
			}
		}
	}
	return ""
}

// ends returns a cluster where the leaf of an earlier root of the same name ends, or "". The claims of a StatefulSet
// that is deleted and created again are there.
func (sub *subject) ends() string {
	for _, c := range sub.clusters {
		if sub.previous[c.Name].Ending {
			return c.Name
		}
	}
	return ""
}

// defaultReplicas are the replicas of a workload whose user does not say how many: kcp sets them.
const defaultReplicas = 1

// chosen returns the replicas that the user of a workload has chosen, or false if they can be the default: then an
// autoscaler chooses, or has chosen.
func (sub *subject) chosen() (int64, bool) {
	n, ok, _ := unstructured.NestedInt64(sub.root.Object, "spec", "replicas")
	return n, ok && (n != defaultReplicas || !sub.scaled && !sub.freed)
}

// replicasOf returns the replicas of a workload. If its user does not say how many, its autoscaler does. Without the
// autoscaler, the replicas that it has made, or that were divided before, are kept, as in Kubernetes.
func (v *view) replicasOf(sub *subject, w schedule.Workload) int64 {
	if n, ok := sub.chosen(); ok {
		return n
	}
	if scaler := v.autoscaler(sub.item, sub.root.Unstructured); scaler != nil {
		return max(1, splitter.BoundsOf(scaler).Min)
	}
	before := int64(0)
	switch {
	case w.Hints.Spread != schedule.Divide:
		for _, share := range sub.previous {
			before = max(before, share.Replicas)
		}
	case sub.freed && !sub.recorded:
		for _, share := range sub.previous {
			before += share.Replicas
		}
	default:
		for _, n := range w.Goal {
			before += n
		}
	}
	return max(1, before)
}

func shareOf(leaf *unstructured.Unstructured) schedule.Share {
	replicas, ok, _ := unstructured.NestedInt64(leaf.Object, "spec", "replicas")
	if !ok {
		replicas = 1
	}
	available, ok, _ := unstructured.NestedInt64(leaf.Object, "status", "availableReplicas")
	if !ok {
		available, _, _ = unstructured.NestedInt64(leaf.Object, "status", "readyReplicas")
	}
	ending, _, _ := unstructured.NestedInt64(leaf.Object, "status", "terminatingReplicas")
	return schedule.Share{Replicas: replicas, Available: available, Existing: existing(leaf) + ending}
}

func existing(leaf *unstructured.Unstructured) (n int64) {
	if leaf != nil {
		n, _, _ = unstructured.NestedInt64(leaf.Object, "status", "replicas")
	}
	return n
}

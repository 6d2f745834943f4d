package roots

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// free gives a root the replicas that its previous autoscaler has made: they continue to run.
func (sub *subject) free() {
	if sub.scaled {
		return
	}
	for name, share := range sub.previous {
		switch leaf := sub.leaves[name]; {
		case share.Ending:
		case leaf.GetAnnotations()[api.AnnotationScaled] == "":
			sub.recorded = true
		default:
			share.Replicas = max(share.Replicas, existing(leaf))
			sub.previous[name] = share
			sub.freed = true
		}
	}
}

// leave makes a workload with an autoscaler leave the clusters that a decision excludes as others do: the replicas
// that run are replaced, and not only the fewest that its autoscaler can choose. It reports whether the decision has
// to be made again.
func (sub *subject) leave(d schedule.Decision) bool {
	if !sub.scaled || sub.workload.Hints.Spread != schedule.Divide || len(d.Goal) == 0 || sub.workload.Replicas == 0 {
		return false
	}
	for _, v := range d.Verdicts {
		share, has := sub.previous[v.Cluster]
		if has && !v.Chosen && !share.Ending && !d.Next[v.Cluster].Lost {
			sub.leaving = append(sub.leaving, v.Cluster)
		}
	}
	if len(sub.leaving) == 0 {
		return false
	}
	runs, begun := int64(0), int64(0)
	for name, share := range sub.previous {
		if !share.Ending && !d.Next[name].Lost {
			share.Replicas = max(share.Replicas, existing(sub.leaves[name]))
			sub.previous[name] = share
			runs += share.Replicas
		}
	}
	for _, n := range sub.workload.Goal {
		begun += n
	}
	if begun <= sub.workload.Replicas {
		begun = runs // it begins now: later, some are there twice
	}
	sub.workload.Replicas = max(sub.workload.Replicas, begun)
	return true
}

// bound returns the bounds of an autoscaler while its workload leaves clusters: it makes what replaces the replicas
// there, and no more of them.
func (d *decided) bound(divided map[string]splitter.Bounds) map[string]splitter.Bounds {
	if len(d.leaving) == 0 {
		return divided
	}
	for cluster, b := range divided {
		b.Min = d.shares[cluster]
		b.Max = max(b.Min, b.Max)
		if slices.Contains(d.leaving, cluster) {
			b.Max = b.Min
		}
		divided[cluster] = b
	}
	return divided
}

// writeGoal records the replicas of a root whose autoscaler is gone, or that leaves a cluster, before its leaves have
// them: from then on, they are the replicas of the root. Where its user does not say how many, the root gets those that
// its autoscaler has made, as in Kubernetes, where the autoscaler itself changes them.
func (w *writer) writeGoal(ctx context.Context, sub *subject, d schedule.Decision) error {
	_, chosen := sub.chosen()
	kept := !sub.scaled && !chosen && sub.workload.Replicas > defaultReplicas &&
		(sub.freed || sub.workload.Hints.Spread == schedule.Divide)
	if !sub.freed && len(sub.leaving) == 0 && !kept {
		return nil
	}
	explain, err := json.Marshal(d.Chosen())
	if err != nil || !kept && string(explain) == sub.root.GetAnnotations()[api.AnnotationExplain] {
		return err
	}
	content := annotated(map[string]any{api.AnnotationExplain: string(explain)})
	if kept {
		content["spec"] = map[string]any{"replicas": sub.workload.Replicas}
	}
	return w.patchRoot(ctx, sub, content)
}

// rescaled reports whether leaves of a workload have AnnotationScaled without an autoscaler, or the other way round.
func (sc *scene) rescaled(i item, root watch.Object) bool {
	scaled := sc.scaled[splitter.TargetOf(refOf(i), root.Unstructured)]
	for _, leaf := range sc.leaves[refOf(i).String()] {
		if leaf == nil || leaf.GetDeletionTimestamp() != nil {
			continue
		}
		if _, divided, _ := unstructured.NestedInt64(leaf.Object, "spec", "replicas"); divided &&
			scaled != (leaf.GetAnnotations()[api.AnnotationScaled] != "") {
			return true
		}
	}
	return false
}

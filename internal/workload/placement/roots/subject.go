package roots

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

type subject struct {
	item
	root     watch.Object
	clusters []*api.Cluster
	serving  serving
	// leaves are the objects with the names of leaves, by cluster, and previous are the shares.
	leaves   map[string]*unstructured.Unstructured
	previous map[string]schedule.Share
	workload schedule.Workload
	mistakes error
	// request is a request to rebalance that is not carried out yet, or "".
	request string
	// scaled means that it has an autoscaler, and freed that it had one, and that a leaf does not have the replicas
	// from that yet. Recorded means that another leaf has: then the goal of the root has them, too.
	scaled, freed, recorded bool
	// leaving are the clusters that a workload with an autoscaler leaves, see leave.
	leaving []string
	// moved are the moves, including the ones of the present decision. None: it moves nothing.
	moved moves
	now   time.Time
}

// subject returns a root with the state for its decision.
func (v *view) subject(i item, root watch.Object) *subject {
	f := v.facts()
	sub := &subject{item: i, root: root, clusters: f.Clusters, serving: f.serving, now: v.Now(),
		previous: map[string]schedule.Share{}}
	sub.leaves = f.leaves(i, root.Unstructured)
	sub.scaled = v.autoscaler(i, root.Unstructured) != nil
	for name, leaf := range sub.leaves {
		switch {
		case splitter.IsRoot(leaf): // an object of the user
		case leaf.GetDeletionTimestamp() != nil:
			sub.previous[name] = schedule.Share{Replicas: max(shareOf(leaf).Replicas, existing(leaf)), Ending: true}
		case splitter.IsLeafOf(leaf, root.Unstructured):
			sub.previous[name] = shareOf(leaf)
		}
	}
	sub.free()
	sub.workload, sub.mistakes = v.workloadOf(sub)
	request := f.Rebalance
	if own := root.GetAnnotations()[api.AnnotationRebalanceRequest]; own != "" {
		request = own
	}
	if request != root.GetAnnotations()[api.AnnotationRebalanced] {
		sub.request = request
	}
	sub.workload.Rebalance = sub.request != ""
	return sub
}

// leaves returns the objects with the names of leaves, by cluster: of the clusters that there are, and of those that
// had a leaf. Clusters that are given up are ignored, as if they were gone.
func (f *facts) leaves(i item, root *unstructured.Unstructured) map[string]*unstructured.Unstructured {
	names := map[string]bool{}
	for _, c := range f.Clusters {
		names[c.Name] = true
	}
	for _, name := range placedOn(root) {
		names[name] = true
	}
	out := map[string]*unstructured.Unstructured{}
	for name := range names {
		k := i.Key
		k.Name = api.LeafName(root.GetName(), name)
		if o, ok := f.set.Get(i.GroupVersionResource, k); ok && !f.givenUp[name] {
			out[name] = o.Unstructured
		}
	}
	return out
}

// placedOn returns the clusters that had a leaf of a root. A user can write the annotation: what cannot be a name of a
// cluster is ignored.
func placedOn(root *unstructured.Unstructured) []string {
	var placement api.Placement
	if json.Unmarshal([]byte(root.GetAnnotations()[api.AnnotationPlacement]), &placement) != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(placement)),
		func(name string) bool { return api.ValidateClusterName(name) != nil })
}

func (sub *subject) assign(candidates []schedule.Cluster, moved moves) schedule.Decision {
	d := schedule.Assign(sub.workload, candidates, sub.previous, moved.budget(sub.workload.Replicas, sub.now))
	if sub.leave(d) {
		d = schedule.Assign(sub.workload, candidates, sub.previous, moved.budget(sub.workload.Replicas, sub.now))
	}
	if sub.mistakes != nil {
		d.Next, d.Moved = sub.mistaken(), 0
	}
	return d
}

func (sub *subject) staying() map[string]schedule.Share {
	out := maps.Clone(sub.previous)
	maps.DeleteFunc(out, func(_ string, share schedule.Share) bool { return share.Ending })
	return out
}

// mistaken returns the shares of a workload with a mistake in an annotation: they are not moved. A change of its
// replicas applies only if it is certain without the annotation: to zero, or in the only cluster.
func (sub *subject) mistaken() map[string]schedule.Share {
	out := sub.staying()
	for name, share := range out {
		if wanted := sub.workload.Replicas; wanted == 0 || len(out) == 1 {
			share.Replicas = wanted
			out[name] = share
		}
	}
	return out
}

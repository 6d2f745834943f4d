package roots

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
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
	claims   []item // that it uses
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
	sub.claims = v.claims(i, root.Unstructured)
	sub.scaled = v.autoscaler(i, root.Unstructured) != nil
	for name, leaf := range sub.leaves {
		switch {
		case splitter.IsRoot(leaf): // an object of the user
		case splitter.IsEnding(leaf, root.Unstructured):
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
		k.Name = api.LeafName(i.Name, name)
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

// recreates is the strategy of a Deployment whose pods of one version end before the pods of the next one start.
const recreates = "Recreate"

// workloadOf returns what is to be assigned. The error lists mistakes in annotations.
func (v *view) workloadOf(sub *subject) (schedule.Workload, error) {
	i := sub.item
	root := sub.root.Unstructured
	data := len(sub.claims) > 0 || kinds.KeepsData(root)
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
	return w, err
}

// homeOf returns the cluster with the data of a workload, or "": where a claim is that it uses, also if there is no
// such Cluster, or else where it will be, because another workload with the claim goes there. The decider is locked.
func (d *decider) homeOf(sub *subject) string {
	f, on := d.facts(), map[string]bool{}
	for _, claim := range sub.claims {
		root, ok := d.beside(claim, claim.Name)
		if !ok {
			root.Unstructured = &unstructured.Unstructured{}
		}
		for name, leaf := range f.leaves(claim, root.Unstructured) {
			// What a user has deleted ends in its cluster, or is lost with it.
			if !splitter.IsRoot(leaf) && (leaf.GetDeletionTimestamp() == nil || sub.exists(name)) {
				on[name] = true
			}
		}
	}
	if len(on) == 0 {
		for _, name := range d.decisions.beside(sub) {
			on[name] = true
		}
	}
	for _, c := range sub.clusters {
		if on[c.Name] {
			return c.Name
		}
	}
	switch w := sub.workload; {
	case len(on) > 0:
		return slices.Min(slices.Collect(maps.Keys(on)))
	case w.Pinned && w.Hints.Spread == schedule.Single:
		return sub.ends()
	}
	return ""
}

// exists reports whether there is a Cluster of a name.
func (sub *subject) exists(name string) bool {
	return slices.ContainsFunc(sub.clusters, func(c *api.Cluster) bool { return c.Name == name })
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
// there.
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

// candidates returns the clusters as a decision sees them: clusters that the workspace may use, and clusters with a
// share.
func (d *decider) candidates(sub *subject) []schedule.Cluster {
	var out []schedule.Cluster
	path := ""
	if selective(sub.clusters) {
		path = d.path(sub.Cluster)
	}
	gr := sub.GroupResource()
	builtIn := slices.ContainsFunc(api.Dependencies(),
		func(r schema.GroupVersionResource) bool { return r.GroupResource() == gr })
	for _, c := range sub.clusters {
		access := accessOf(c, path)
		share, has := sub.previous[c.Name]
		if access == schedule.Refused && !has && c.Name != sub.workload.Home {
			continue // a user does not learn about it
		}
		status := c.API(gr)
		if builtIn {
			status.State = api.APIPublished // every cluster serves it
		}
		current := builtIn || sub.serving.current(c, gr, sub.now)
		ready := settled(c, sub.now)
		out = append(out, schedule.Cluster{
			Name: c.Name, Labels: c.Labels,
			Ready: fleet.IsReady(c), Settled: ready && current, Stale: ready && !current,
			Problem: notReadyReason(c), Lost: lost(c, sub.workload, sub.now),
			Unschedulable: c.Spec.Unschedulable, Draining: c.Draining(), Access: access, API: status,
			Free: d.reserved.of(c.Name).free(c.Status.Capacity, sub.item, has && !share.Ending, sub.now),
		})
	}
	return out
}

func accessOf(c *api.Cluster, path string) schedule.Access {
	switch {
	case c.Spec.WorkspaceSelector == nil:
		return schedule.Granted
	case path == "":
		return schedule.Unknown
	case c.Spec.WorkspaceSelector.Selects(path):
		return schedule.Granted
	}
	return schedule.Refused
}

// selective reports whether a cluster selects workspaces, so that their paths have to be known.
func selective(clusters []*api.Cluster) bool {
	return slices.ContainsFunc(clusters, func(c *api.Cluster) bool { return c.Spec.WorkspaceSelector != nil })
}

// notReadyReason returns the reason why a cluster is not ready, or "". It has no message: that can differ each time,
// and it is written to all roots.
func notReadyReason(c *api.Cluster) string {
	if r := meta.FindStatusCondition(c.Status.Conditions, api.ConditionReady); r != nil &&
		r.Status != metav1.ConditionTrue {
		return r.Reason
	}
	return ""
}

// lost reports whether other clusters run the share of a cluster, too. A condition of the Cluster has that. A workload
// can want another time, or never. One that must be alone needs an annotation for that: what does not answer can still
// run.
func lost(c *api.Cluster, w schedule.Workload, now time.Time) bool {
	if fleet.IsReady(c) || w.Hints.Failover == api.FailoverNever || w.Alone && w.Hints.Failover == "" {
		return false
	}
	evicted := meta.FindStatusCondition(c.Status.Conditions, api.ConditionEvicted)
	switch {
	case evicted == nil:
		return false
	case w.Hints.FailoverAfter > 0 &&
		(evicted.Status == metav1.ConditionTrue || evicted.Reason == api.ReasonEvictAfter):
		return untilLost(c, w, now) <= 0
	}
	return fleet.IsEvicted(c)
}

// untilLost returns the time until a cluster is lost for a workload with its own time.
func untilLost(c *api.Cluster, w schedule.Workload, now time.Time) time.Duration {
	since := fleet.Since(c)
	if since.IsZero() {
		return w.Hints.FailoverAfter
	}
	return w.Hints.FailoverAfter - now.Sub(since)
}

// stuckAfter is how long replicas are not available until they may move to a cluster with room.
const stuckAfter = time.Minute

// stuckSince returns since when replicas of a workload have not been available, by cluster. What is not known of a
// cluster whose status is stale is not a reason to move anything.
func stuckSince(before map[string]time.Time, sub *subject, candidates []schedule.Cluster) map[string]time.Time {
	out := map[string]time.Time{}
	for cluster, share := range sub.previous {
		stale := slices.ContainsFunc(candidates, func(c schedule.Cluster) bool { return c.Name == cluster && c.Stale })
		if share.Ending || share.Available >= share.Replicas || stale {
			continue
		}
		out[cluster] = sub.now
		if since, ok := before[cluster]; ok {
			out[cluster] = since
		}
	}
	return out
}

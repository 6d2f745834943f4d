// Package schedule decides on which clusters a workload runs, and how many replicas each of them gets, with the reasons. The result
// depends only on the arguments: the same ones give the same result in every process.
//
// A decision has two parts. The goal is the best assignment for the clusters as they are. The next step is how far to go there
// now: lost replicas are replaced at once, but running ones move a few at a time, and a cluster shrinks only after its
// replacements are available. When a cluster returns, the goal includes it again, and replicas move back in the same way.
package schedule

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/workload/api"
)

// Workload is what is to be assigned.
type Workload struct {
	// Key identifies the workload, for ties: workloads of one replica would otherwise all run on the same cluster.
	Key   string
	Hints Hints
	// Replicas are those of all clusters together if they are divided, or else those of each cluster.
	Replicas int64
	// Requests are what a replica requests.
	Requests corev1.ResourceList
	// Pinned means that the workload has data in its cluster. It stays there even if the cluster is not ready.
	Pinned bool
	// Finished means that the workload has run to its end. It stays where it is: another cluster would run it again.
	Finished bool
	// Home is the cluster that has data which the workload uses already. It runs only there. Empty: there is none.
	Home string
	// Affine are the clusters with objects that match Hints.Affinity, and AntiAffine those with objects that match Hints.AntiAffinity.
	Affine, AntiAffine map[string]bool
	// Goal is that of the last decision, as far as it is known. A move that has begun does not end before it is reached.
	Goal map[string]int64
}

// Cluster is the state of a cluster.
type Cluster struct {
	Name   string
	Labels map[string]string
	// Ready is whether the cluster runs what is scheduled to it. Problem is the reason if it does not, empty if it is not known.
	Ready   bool
	Problem string
	// Evicted means that the cluster has been not ready for so long that its share runs elsewhere.
	Evicted bool
	// Unschedulable means that nothing new is scheduled to it. Draining means that its share moves to other clusters.
	Unschedulable, Draining bool
	// API is the state of the API of the workload.
	API api.APIStatus
	// Free are the resources that are neither requested nor reserved. It is nil if they are unknown.
	Free corev1.ResourceList
}

// Share is what a cluster has of a workload.
type Share struct {
	Replicas, Available int64
	// Surge means that some of the replicas were added for replicas that another cluster still has.
	Surge bool
}

// Verdict is the result for a cluster, with the reason. It is in the annotation workloads.kcp.dev/explain.
type Verdict struct {
	Cluster string `json:"cluster"`
	Chosen  bool   `json:"chosen"`
	Reason  string `json:"reason"`
	Weight  int64  `json:"weight,omitempty"`
	// Goal are the replicas that the cluster gets in the end, Replicas those of the next step.
	Goal     int64 `json:"goal"`
	Replicas int64 `json:"replicas"`
}

// GoalOf returns the goal in the annotation workloads.kcp.dev/explain, or nothing if it has none.
func GoalOf(explain string) map[string]int64 {
	var all []Verdict
	if json.Unmarshal([]byte(explain), &all) != nil {
		return nil
	}
	goal := map[string]int64{}
	for _, v := range all {
		goal[v.Cluster] = v.Goal
	}
	return goal
}

// Decision is the assignment of a workload.
type Decision struct {
	// Goal has the replicas of each chosen cluster in the end, and Next those of the next step. A cluster that has to lose its
	// replicas is in Next until they are gone.
	Goal map[string]int64
	Next map[string]Share
	// Unplaced are replicas that no cluster can take.
	Unplaced int64
	// Moved has the replicas that each cluster gets in the next step for running ones of others.
	Moved map[string]int64
	// Verdicts are sorted by cluster.
	Verdicts []Verdict
	// Message is about the workload as a whole, such as that no cluster is a candidate. It is empty if everything is well.
	Message string
}

// Done reports whether the goal is reached: another decision with the same clusters would change nothing.
func (d *Decision) Done(previous map[string]Share) bool {
	if len(d.Next) != len(previous) {
		return false
	}
	for name, share := range d.Next {
		goal, ok := d.Goal[name]
		if was, had := previous[name]; !ok || !had || share.Replicas != goal || was.Replicas != goal {
			return false
		}
	}
	return true
}

// Assign decides where a workload runs. Previous has the share of each cluster that has one. Moves are the replicas that may
// move now: if it is zero, Moves, and if it is negative, none.
func Assign(w Workload, clusters []Cluster, previous map[string]Share, moves int64) Decision {
	clusters = slices.SortedFunc(slices.Values(clusters), func(a, b Cluster) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	a := &assignment{workload: w, previous: previous, clusters: map[string]*candidate{}}
	for _, c := range clusters {
		a.clusters[c.Name] = a.judge(c)
		a.order = append(a.order, c.Name)
	}
	a.weigh()
	a.limit()
	d := Decision{Goal: map[string]int64{}, Next: map[string]Share{}}
	switch w.Hints.Spread {
	case Duplicate:
		for _, c := range a.chosen() {
			d.Goal[c.Name] = w.Replicas
		}
		d.Next = a.atOnce(d.Goal)
	case Single:
		if c := a.best(); c != nil {
			d.Goal[c.Name] = w.Replicas
		}
		d.Next = a.atOnce(d.Goal)
	default:
		d.Goal, d.Unplaced = a.divide()
		d.Next, d.Moved = a.step(d.Goal, moves)
	}
	a.explain(&d)
	return d
}

// assignment is the state of a decision.
type assignment struct {
	workload Workload
	previous map[string]Share
	clusters map[string]*candidate
	order    []string // names of the clusters, sorted
	byRoom   bool     // the weights are free capacity
	full     bool     // no candidate has room
}

// candidate is a cluster with its verdict.
type candidate struct {
	Cluster
	ok     bool
	reason string
	weight int64
	most   int64 // the largest share
}

// judge returns whether a cluster is a candidate, and why.
func (a *assignment) judge(c Cluster) *candidate {
	h, share := a.workload.Hints, a.previous[c.Name]
	_, has := a.previous[c.Name]
	no := func(format string, args ...any) *candidate {
		return &candidate{Cluster: c, reason: fmt.Sprintf(format, args...)}
	}
	stays := func(reason string) *candidate {
		return &candidate{Cluster: c, ok: true, reason: reason + ": keeps what it has", most: share.Replicas}
	}
	if a.workload.Pinned && has {
		return &candidate{Cluster: c, ok: true, reason: "has the data of the workload", most: math.MaxInt64}
	}
	if a.workload.Finished && has {
		return &candidate{Cluster: c, ok: true, reason: "has run the workload to its end", most: math.MaxInt64}
	}
	switch {
	case a.workload.Home != "" && a.workload.Home != c.Name:
		return no("the data of the workload is on cluster %s", a.workload.Home)
	case h.ClusterSelector != nil && !h.ClusterSelector.Matches(labels.Set(c.Labels)):
		return no("its labels do not match %s", h.ClusterSelector)
	case h.Weights != nil && h.Weights[c.Name] == 0:
		return no("it has no weight in %s", api.AnnotationWeights)
	case h.Affinity != nil && !a.workload.Affine[c.Name]:
		return no("no object there matches the affinity %s", h.Affinity)
	case h.AntiAffinity != nil && a.workload.AntiAffine[c.Name]:
		return no("an object there matches the anti-affinity %s", h.AntiAffinity)
	case c.Draining:
		return no("it is drained")
	case c.Evicted:
		return no("%s for longer than evictAfter", c.notReady())
	case !c.API.State.Serves() && !has:
		return no("%s: %s", c.API.State, c.API.Message)
	case !c.API.State.Serves():
		return stays(string(c.API.State) + ": " + c.API.Message)
	case !c.Ready && !has:
		return no("%s", c.notReady())
	case !c.Ready:
		return stays(c.notReady())
	case c.Unschedulable && !has:
		return no("it is cordoned")
	case c.Unschedulable:
		return stays("it is cordoned")
	}
	return &candidate{Cluster: c, ok: true, reason: "is a candidate", most: math.MaxInt64}
}

// notReady says that the cluster is not ready, and why.
func (c *Cluster) notReady() string {
	if c.Problem == "" {
		return "it is not ready"
	}
	return "it is not ready (" + c.Problem + ")"
}

// weigh sets the weights of candidates: explicit ones, else how many replicas a cluster has room for, else one.
func (a *assignment) weigh() {
	known, room := true, int64(0)
	for _, c := range a.chosen() {
		known = known && c.Free != nil
		c.weight = a.room(c) + a.previous[c.Name].Replicas
		room += c.weight
	}
	switch {
	case a.workload.Hints.Weights != nil:
		for _, c := range a.chosen() {
			c.weight = a.workload.Hints.Weights[c.Name]
		}
		return
	case known && room > 0:
		a.byRoom = true
		for _, c := range a.chosen() {
			if c.weight == 0 {
				c.reason = "has no room for a replica"
			}
		}
		return
	case known:
		a.full = true
	}
	for _, c := range a.chosen() {
		c.weight = 1
	}
}

// room returns how many more replicas fit into the free resources of a cluster.
func (a *assignment) room(c *candidate) int64 {
	fits := int64(math.MaxInt32)
	requests := maps.Clone(a.workload.Requests)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	requests[corev1.ResourcePods] = resource.MustParse("1")
	for name, request := range requests {
		free, ok := c.Free[name]
		if request.Sign() <= 0 || !ok && name == corev1.ResourcePods {
			continue
		}
		fits = min(fits, max(0, int64(free.AsApproximateFloat64()/request.AsApproximateFloat64())))
	}
	return fits
}

// Free returns the resources of a cluster that pods can still request. Reserved is what was scheduled to it and is not yet in
// its requested resources: without it, decisions shortly after each other would all choose the same cluster. It returns nil if
// the capacity is unknown.
func Free(capacity *api.Capacity, reserved corev1.ResourceList) corev1.ResourceList {
	if capacity == nil {
		return nil
	}
	free := corev1.ResourceList{}
	for name, q := range capacity.Allocatable {
		left := q.DeepCopy()
		left.Sub(capacity.Requested[name])
		left.Sub(reserved[name])
		free[name] = left
	}
	return free
}

// chosen returns the candidates, sorted by name.
func (a *assignment) chosen() []*candidate {
	var all []*candidate
	for _, name := range a.order {
		if c := a.clusters[name]; c.ok {
			all = append(all, c)
		}
	}
	return all
}

// explain adds the verdicts.
func (a *assignment) explain(d *Decision) {
	for _, name := range a.order {
		c := a.clusters[name]
		d.Verdicts = append(d.Verdicts, Verdict{
			Cluster: name, Chosen: c.ok, Reason: c.reason, Weight: c.weight, Goal: d.Goal[name], Replicas: d.Next[name].Replicas,
		})
	}
	switch {
	case len(a.order) == 0:
		d.Message = "there are no clusters: add one with kcpctl cluster add"
	case len(a.chosen()) == 0:
		d.Message = fmt.Sprintf("none of %d clusters can run it", len(a.order))
	case d.Unplaced > 0:
		d.Message = fmt.Sprintf("%d replicas wait for a cluster that accepts new ones", d.Unplaced)
	case a.full:
		d.Message = "no cluster has room for another replica"
	}
}

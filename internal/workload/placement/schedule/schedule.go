// Package schedule decides on which clusters a workload runs, and how many replicas each of them gets, with the
// reasons. The result depends only on the arguments: the same ones give the same result in every process.
//
// A decision has two parts. The goal is the assignment that the workload should have in the end. The next step is what
// changes now: missing replicas are created at once, but running ones move a few at a time.
//
// Running replicas are kept. A replica is stopped only because its user wants fewer, because a user or an administrator
// excludes its cluster, or because the user requests another division, and then only when enough others are available.
// A cluster that does not answer is not a reason to stop one: others run its share, too, and its own share continues
// when it is back.
package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
)

// Workload is the workload that is assigned.
type Workload struct {
	// Key identifies the workload, for ties: workloads of one replica would otherwise all run on the same cluster.
	Key string
	// Workspace identifies the workspace: its workloads prefer the same clusters, see Near.
	Workspace string
	Hints     Hints
	// Replicas is the number in all clusters together if they are divided, or else in each cluster.
	Replicas int64
	// Requests are the requests of a replica.
	Requests corev1.ResourceList
	// Pinned means that the workload has data in its cluster. It is kept there even if the cluster is not ready.
	Pinned bool
	// Finished means that the workload has run to its end. It is not moved: another cluster would run it again.
	Finished bool
	// Home is the cluster that has data which the workload uses already. It runs only there. Empty: there is none.
	Home string
	// Alone means that two instances of a replica must not run at the same time: a replica ends before it starts
	// elsewhere.
	Alone bool
	// Rebalance divides the running replicas, too, by the room of the clusters. Otherwise they are kept.
	Rebalance bool
	// Affine are the clusters with objects that match Hints.Affinity, and AntiAffine the clusters with objects that
	// match Hints.AntiAffinity.
	Affine, AntiAffine map[string]bool
	// Goal is the goal of the last decision, as far as it is known. A move that has begun does not end before it is
	// reached, and a workload that runs on one cluster and has not started starts there.
	Goal map[string]int64
}

// Access is whether the workspace of a workload may use a cluster.
type Access int

const (
	// Granted means that it may.
	Granted Access = iota
	// Unknown means that this is not known yet: nothing new is scheduled there, and running replicas are kept.
	Unknown
	// Refused means that it may not.
	Refused
)

// Cluster is the state of a cluster.
type Cluster struct {
	Name   string
	Labels map[string]string
	// Ready is whether the cluster runs what is scheduled to it. Problem is the reason if it does not, empty if it is
	// not known.
	Ready   bool
	Problem string
	// Settled means that the cluster has been ready for so long that the status of its leaves is current.
	Settled bool
	// Stale means that it would be settled, but does not sync the API, or has only begun to do so again: the status of
	// its leaves is old, and what runs there is presumed to be available.
	Stale bool
	// Lost means that other clusters run the share of the cluster, too, because it has been not ready for long.
	Lost bool
	// Unschedulable means that nothing new is scheduled to it. Draining means that its share moves to other clusters.
	Unschedulable, Draining bool
	Access                  Access
	// API is the state of the API of the workload.
	API api.APIStatus
	// Free are the resources that are neither requested nor reserved. It is nil if they are unknown.
	Free corev1.ResourceList
}

// Share is the part of a workload in a cluster.
type Share struct {
	Replicas, Available int64
	// Existing are the pods that there are, with those that end: more than the replicas if these have just become
	// fewer.
	Existing int64
	// Stuck are replicas that have not been available for a while, such as pods that no node has room for.
	Stuck int64
	// Ending means that the object is being deleted.
	Ending bool
	// Lost means that the share is not counted, see Cluster.Lost. It is not changed.
	Lost bool
}

// Verdict is the result for a cluster, with the reason. The annotation workloads.kcp.dev/explain has the verdicts of
// chosen clusters.
type Verdict struct {
	Cluster string `json:"cluster"`
	Chosen  bool   `json:"chosen"`
	Reason  string `json:"reason"`
	// Goal are the replicas that the cluster gets in the end, and Replicas in the next step.
	Goal     int64 `json:"goal"`
	Replicas int64 `json:"replicas"`
}

// GoalOf returns the goal in the annotation workloads.kcp.dev/explain, or nil if it is not valid.
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
	// Goal has the replicas of each chosen cluster in the end, and Next the replicas of the next step. A cluster that
	// has to lose its replicas is in Next until they are gone, and one that is lost keeps its share.
	Goal map[string]int64
	Next map[string]Share
	// Unplaced are replicas that no cluster can take.
	Unplaced int64
	// Gone are clusters that keep a share, although there is no Cluster of their name.
	Gone []string
	// Moved is the number of replicas that the next step starts for, or stops before, running ones of other clusters.
	Moved int64
	// Verdicts are sorted by cluster.
	Verdicts []Verdict
	// Message is about the workload as a whole, such as that no cluster is a candidate. It is empty if everything is
	// well.
	Message string
}

// Done reports whether the goal is reached: another decision with the same clusters would change nothing.
func (d *Decision) Done(previous map[string]Share) bool {
	for name, share := range d.Next {
		goal, ok := d.Goal[name]
		was, had := previous[name]
		if !share.Lost && (!ok || !had || share.Replicas != goal || was.Replicas != goal) {
			return false
		}
	}
	for name, share := range previous {
		if _, ok := d.Next[name]; !ok && !share.Ending {
			return false
		}
	}
	return true
}

// Chosen returns the verdicts about the clusters that have, get or lose a share: they do not change when other clusters
// do.
func (d *Decision) Chosen() []Verdict {
	return slices.DeleteFunc(slices.Clone(d.Verdicts), func(v Verdict) bool {
		_, now := d.Next[v.Cluster]
		_, then := d.Goal[v.Cluster]
		return !now && !then
	})
}

// Assign decides where a workload runs. Previous has the share of each cluster that has one. Moves are the replicas
// that may move now: if it is zero, Moves, and if it is negative, none.
func Assign(w Workload, clusters []Cluster, previous map[string]Share, moves int64) Decision {
	a := &assignment{workload: w, previous: map[string]Share{}, ending: map[string]Share{},
		clusters: map[string]*candidate{}}
	a.requested = a.requests()
	for name, share := range previous {
		share.Lost = false
		if share.Ending {
			a.ending[name] = share
		} else {
			a.previous[name] = share
		}
	}
	for _, c := range clusters {
		a.clusters[c.Name] = a.judge(c)
	}
	for name := range a.previous {
		if a.clusters[name] == nil {
			a.clusters[name] = a.missing(name)
		}
	}
	if w.Home != "" && a.clusters[w.Home] == nil {
		a.clusters[w.Home] = &candidate{Cluster: Cluster{Name: w.Home}, reason: noCluster, gone: true}
	}
	a.order = slices.Sorted(maps.Keys(a.clusters))
	a.narrow()
	a.weigh()
	a.limit()
	d := Decision{Goal: map[string]int64{}, Next: map[string]Share{}}
	switch w.Hints.Spread {
	case Duplicate:
		a.duplicate(&d)
	case Single:
		a.single(&d)
	default:
		d.Goal, d.Unplaced = a.divide()
		d.Next, d.Moved = a.step(d.Goal, moves)
	}
	a.keepLost(&d)
	a.explain(&d)
	return d
}

type assignment struct {
	workload         Workload
	previous, ending map[string]Share
	clusters         map[string]*candidate
	order            []string // names of the clusters, sorted
	requested        []request
	byRoom           bool // the weights are free capacity
	full             bool // no candidate has room
}

// keepLost keeps the shares of lost clusters, but no more than the user wants by now.
func (a *assignment) keepLost(d *Decision) {
	for name, share := range a.previous {
		if a.clusters[name].lost {
			share.Lost, share.Replicas = true, min(share.Replicas, a.workload.Replicas)
			d.Next[name] = share
		}
	}
}

func (a *assignment) chosen() []*candidate {
	var all []*candidate
	for _, name := range a.order {
		if c := a.clusters[name]; c.ok {
			all = append(all, c)
		}
	}
	return all
}

func (a *assignment) explain(d *Decision) {
	for _, name := range a.order {
		c := a.clusters[name]
		d.Verdicts = append(d.Verdicts, Verdict{
			Cluster: name, Chosen: c.ok, Reason: c.reason, Goal: d.Goal[name], Replicas: d.Next[name].Replicas,
		})
		if c.gone {
			d.Gone = append(d.Gone, name)
		}
	}
	switch {
	case len(a.order) == 0:
		d.Message = "there are no clusters: add one with kcpctl cluster add"
	case len(d.Gone) > 0:
		d.Message = fmt.Sprintf("there is no Cluster %s, which has the workload or its data: "+
			"register it again, or delete the workload and its volume claims if the cluster is lost",
			strings.Join(d.Gone, ", "))
	case len(a.chosen()) == 0:
		d.Message = fmt.Sprintf("none of %d clusters can run it: %s", len(a.order), a.reasons())
	case d.Unplaced > 0:
		d.Message = fmt.Sprintf("%d replicas wait for a cluster that accepts new ones", d.Unplaced)
	case a.full:
		d.Message = "no cluster has room for another replica"
	}
}

const maxReasons = 3

// reasons returns why the clusters are no candidates, the most frequent reason first.
func (a *assignment) reasons() string {
	count := map[string]int{}
	for _, c := range a.clusters {
		count[c.reason]++
	}
	all := slices.SortedFunc(maps.Keys(count), func(x, y string) int {
		return cmp.Or(cmp.Compare(count[y], count[x]), cmp.Compare(x, y))
	})
	var out []string
	for _, reason := range all[:min(len(all), maxReasons)] {
		if count[reason] == 1 {
			out = append(out, reason)
		} else {
			out = append(out, fmt.Sprintf("%s (%d clusters)", reason, count[reason]))
		}
	}
	return strings.Join(out, "; ")
}

// NearClusters is the number of clusters that a workspace prefers. In a larger fleet, its workloads would be divided
// over all clusters, and the workspace would need an APIBinding for each of them.
const NearClusters = 10

// Near returns the clusters that a workspace prefers, at most NearClusters, in the order of preference. Each workspace
// has its own order, so that all clusters get about the same number of workspaces. A cluster that joins or leaves
// changes the order of no other ones.
func Near(workspace string, clusters []string) []string {
	all := slices.SortedFunc(slices.Values(clusters), func(x, y string) int { return nearer(workspace, x, y) })
	return all[:min(len(all), NearClusters)]
}

// nearer orders clusters by the preference of a workspace: by their hashes (rendezvous hashing).
func nearer(workspace, x, y string) int {
	return cmp.Or(cmp.Compare(distance(workspace, x), distance(workspace, y)), strings.Compare(x, y))
}

func distance(workspace, cluster string) uint64 {
	sum := hashOf(workspace, cluster)
	// The last bytes hardly change the high bits of the hash, and clusters often differ in these bytes only.
	sum ^= sum >> 33
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	return sum
}

// narrow keeps the candidates that the workspace prefers: candidates with a share, and as many others as it takes to
// have NearClusters, or more if the user allows more or the replicas do not fit. Users who set weights, and objects
// that go to each cluster, have chosen.
func (a *assignment) narrow() {
	all, w := a.chosen(), a.workload
	most := max(NearClusters, w.Hints.MaxClusters)
	if len(all) <= most || w.Hints.Weights != nil || w.Hints.Spread == Duplicate {
		return
	}
	slices.SortFunc(all, func(x, y *candidate) int { return cmp.Or(a.has(x, y), nearer(w.Workspace, x.Name, y.Name)) })
	missing := w.Replicas
	for _, c := range all {
		share := a.previous[c.Name]
		missing -= share.Replicas - share.Stuck
	}
	room := int64(0)
	for n, c := range all {
		_, has := a.previous[c.Name]
		if n >= most && !has && room >= missing {
			c.ok = false
			c.reason = "its workspace prefers other clusters"
			continue
		}
		if c.most == math.MaxInt64 {
			room = a.added(room, c)
		}
	}
}

// added returns the room of candidates with another one. A workload on one cluster has to fit into it.
func (a *assignment) added(room int64, c *candidate) int64 {
	own := int64(math.MaxInt32)
	if c.Free != nil {
		own = a.room(c)
	}
	if a.workload.Hints.Spread == Single {
		return max(room, own)
	}
	return room + own
}

func (a *assignment) duplicate(d *Decision) {
	for _, c := range a.chosen() {
		d.Goal[c.Name] = a.workload.Replicas
		d.Next[c.Name] = Share{Replicas: a.workload.Replicas, Available: a.previous[c.Name].Available}
	}
	if !a.replaced(d.Goal) {
		a.keep(d, a.mayStay)
	}
}

// single decides about a workload that runs on one cluster. It ends there before it starts on another one, unless the
// cluster is lost and the user wants others to run it, too. Without another cluster, it is not moved.
func (a *assignment) single(d *Decision) {
	best := a.best()
	if best == nil {
		a.keep(d, func(*candidate) bool { return true })
		return
	}
	d.Goal[best.Name] = a.workload.Replicas
	_, here := a.previous[best.Name]
	_, endsHere := a.ending[best.Name]
	elsewhere := len(a.ending) > 0 && !endsHere || len(a.ending) > 1
	for name := range a.previous {
		elsewhere = elsewhere || name != best.Name && !a.clusters[name].lost
	}
	switch {
	case here:
		d.Next[best.Name] = Share{Replicas: a.workload.Replicas, Available: a.previous[best.Name].Available}
		if !a.replaced(d.Goal) {
			a.keep(d, a.mayStay)
		}
	case !elsewhere:
		d.Next[best.Name] = Share{Replicas: a.workload.Replicas}
	}
}

// replaced reports whether the clusters of a goal are known to have what they should have.
func (a *assignment) replaced(goal map[string]int64) bool {
	for name, n := range goal {
		if share, has := a.previous[name]; !has || share.Available < n || !a.clusters[name].Settled {
			return false
		}
	}
	return len(goal) > 0
}

func (a *assignment) mayStay(c *candidate) bool { return a.excluded(c.Cluster) == "" }

// keep adds shares to the next step that nothing replaces yet.
func (a *assignment) keep(d *Decision, which func(*candidate) bool) {
	for name, share := range a.previous {
		if _, there := d.Next[name]; !there && which(a.clusters[name]) {
			share.Replicas = min(share.Replicas, a.workload.Replicas)
			d.Next[name] = share
		}
	}
}

// best returns the cluster of a workload that runs on one: where it is, or where it was to be, or the one with the
// largest weight.
func (a *assignment) best() *candidate {
	all := a.chosen()
	if len(all) == 0 {
		return nil
	}
	chosen := slices.MinFunc(all, func(x, y *candidate) int {
		return cmp.Or(a.has(x, y), a.meant(x, y), first(x.Ready, y.Ready), cmp.Compare(y.weight, x.weight), a.rank(x, y))
	})
	for _, c := range all {
		if c != chosen {
			c.ok = false
			c.reason = "the workload runs on one cluster, and " + chosen.Name + " is preferred"
		}
	}
	return chosen
}

// meant orders candidates of the last goal first: a workload that waits for the end of an earlier one starts where that
// has its data.
func (a *assignment) meant(x, y *candidate) int {
	_, toX := a.workload.Goal[x.Name]
	_, toY := a.workload.Goal[y.Name]
	return first(toX, toY)
}

package roots

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/fleet"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

type decider struct {
	*view
	decisions *decisions

	// mu is held for a decision, so that each one knows what others take. While it is held, the locks of the view and
	// of the decisions are taken, and never the other way round.
	mu       sync.Mutex
	reserved reservations
}

func newDecider(v *view) *decider {
	return &decider{view: v, decisions: newDecisions(), reserved: reservations{}}
}

// decide decides where a workload runs, and remembers it. It reports whether the decision affects the places of the
// objects that the workload needs. A mistake in an annotation must not move anything that runs.
func (d *decider) decide(sub *subject) (_ schedule.Decision, affects bool) {
	neighbours := d.neighbours(sub.item, sub.workload.Hints)
	needs := splitter.NeedsOf(sub.root.Unstructured)
	d.mu.Lock()
	defer d.mu.Unlock()
	last, _ := d.decisions.of(sub.item)
	d.decisions.near(neighbours, &sub.workload)
	sub.workload.Home = d.homeOf(sub)
	if last.uid != sub.root.GetUID() {
		last.moved = movesOf(sub.root.Unstructured).now(sub.now) // of the previous controller
		last.shares = nil
	}
	candidates := d.candidates(sub)
	next := decided{moved: last.moved, stuck: stuckSince(last.stuck, sub, candidates), uid: sub.root.GetUID(),
		claims: sub.claims, home: sub.workload.Home}
	for cluster, since := range next.stuck {
		if share := sub.previous[cluster]; sub.now.Sub(since) >= stuckAfter {
			share.Stuck = share.Replicas - share.Available
			sub.previous[cluster] = share
		}
	}
	decision := sub.assign(candidates, last.moved)
	next.shares = sharesOf(decision)
	next.divided = sub.workload.Hints.Spread == schedule.Divide
	next.leaving = sub.leaving
	if decision.Moved > 0 {
		sub.moved = last.moved.add(decision.Moved, sub.now)
	}
	d.reserved.record(sub, decision.Next, last.shares)
	next.clusters = slices.Sorted(maps.Keys(decision.Next))
	// Leaves that are not wanted count until they are gone.
	next.seen = fmt.Sprint(next.shares, next.divided, slices.Sorted(maps.Keys(sub.leaves)), sub.root.GetUID(),
		needs, sub.root.GetLabels())
	waits := len(decision.Goal) == 0 || decision.Unplaced > 0 || decision.Message != "" || sub.workload.Rebalance ||
		len(next.stuck) > 0
	d.decisions.remember(sub.item, next, waits, sub.workload.Hints.Spread == schedule.Duplicate)
	return decision, last.seen != next.seen
}

func (d *decider) forget(i item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved.forget(i)
	d.decisions.forget(i)
}

func sharesOf(d schedule.Decision) map[string]int64 {
	out := map[string]int64{}
	for name, share := range d.Next {
		out[name] = share.Replicas
	}
	return out
}

// decided is where a workload runs after the last decision.
type decided struct {
	clusters []string
	// seen is the state that the places of dependencies depend on.
	seen string
	// leaving are the clusters that a workload with an autoscaler leaves.
	leaving []string
	// shares are the replicas of the next step by cluster, for a root with a UID. Divided means that they are parts of
	// the replicas of the root.
	shares  map[string]int64
	divided bool
	uid     types.UID
	// claims are those that the workload uses, and home is the cluster with its data, see homeOf.
	claims []item
	home   string
	moved  moves
	// stuck has since when replicas have not been available, by cluster.
	stuck map[string]time.Time
}

// decisions are the last decision about each workload, and what changes it.
type decisions struct {
	mu  sync.Mutex
	all map[item]decided
	// on has the workloads by cluster, and users by claim. Another cluster or more room can change those that wait, and
	// everywhere has those that go to each cluster.
	on                  index[string]
	users               index[item]
	waiting, everywhere map[item]bool
	// fingerprints are the states that the last decisions depended on, by cluster.
	fingerprints map[string]fingerprint
}

func newDecisions() *decisions {
	return &decisions{all: map[item]decided{}, on: index[string]{}, users: index[item]{}, waiting: map[item]bool{},
		everywhere: map[item]bool{}}
}

// index finds workloads by something that their decisions name.
type index[K comparable] map[K]map[item]bool

func (x index[K]) add(keys []K, i item) {
	for _, k := range keys {
		if x[k] == nil {
			x[k] = map[item]bool{}
		}
		x[k][i] = true
	}
}

func (x index[K]) remove(keys []K, i item) {
	for _, k := range keys {
		if delete(x[k], i); len(x[k]) == 0 {
			delete(x, k)
		}
	}
}

func (d *decisions) of(i item) (decided, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, known := d.all[i]
	return last, known
}

func (d *decisions) remember(i item, next decided, waits, everywhere bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unlink(i)
	d.all[i] = next
	d.on.add(next.clusters, i)
	d.users.add(next.claims, i)
	if waits {
		d.waiting[i] = true
	}
	if everywhere {
		d.everywhere[i] = true
	}
}

// count counts the moves of a decision whose leaves are written.
func (d *decisions) count(i item, moved moves) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, ok := d.all[i]; ok && moved.n > 0 {
		last.moved = moved
		d.all[i] = last
	}
}

func (d *decisions) forget(i item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unlink(i)
	delete(d.all, i)
}

// unlink removes a workload from the indexes. The decisions are locked.
func (d *decisions) unlink(i item) {
	d.on.remove(d.all[i].clusters, i)
	d.users.remove(d.all[i].claims, i)
	delete(d.waiting, i)
	delete(d.everywhere, i)
}

// near sets the clusters with objects that a workload wants to be near to, or not: leaves in the same namespace, and
// what was decided about other workloads there.
func (d *decisions) near(all []neighbour, w *schedule.Workload) {
	w.Affine = map[string]bool{}
	w.AntiAffine = map[string]bool{}
	for _, n := range all {
		last, _ := d.of(n.item)
		on := last.clusters
		if n.cluster != "" {
			on = []string{n.cluster}
		}
		for _, c := range on {
			w.Affine[c] = w.Affine[c] || n.affine
			w.AntiAffine[c] = w.AntiAffine[c] || n.anti
		}
	}
}

// beside returns the clusters of the last decisions about the claims of a workload, and about others that use them.
func (d *decisions) beside(sub *subject) (clusters []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, claim := range sub.claims {
		clusters = append(clusters, d.all[claim].clusters...)
		for i := range d.users[claim] {
			if i != sub.item {
				clusters = append(clusters, d.all[i].clusters...)
			}
		}
	}
	return clusters
}

// affected returns the workloads that a change of the clusters affects: workloads with a share in a cluster whose state
// has changed, and, if any cluster has changed, workloads that wait for one, or that go to each.
func (d *decisions) affected(f facts, now time.Time) map[item]bool {
	next := map[string]fingerprint{}
	for _, c := range f.Clusters {
		next[c.Name] = fingerprintOf(c, f.serving, now)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	names := maps.Clone(next)
	maps.Copy(names, d.fingerprints)
	out := map[item]bool{}
	anyState := false
	anyRoom := false
	for name := range names {
		was := d.fingerprints[name]
		is := next[name]
		if was.state != is.state {
			anyState = true
			maps.Copy(out, d.on[name])
		}
		anyRoom = anyRoom || was.room != is.room
	}
	d.fingerprints = next
	if anyState || anyRoom {
		maps.Copy(out, d.waiting)
	}
	if anyState {
		maps.Copy(out, d.everywhere)
	}
	return out
}

type fingerprint struct {
	// state changes what runs there, and room only what can be added.
	state, room string
}

// fingerprintOf returns what decisions depend on of a cluster. What pods request changes all the time, and is seen when
// a decision is made for another reason.
func fingerprintOf(c *api.Cluster, serving serving, now time.Time) fingerprint {
	evicted := meta.FindStatusCondition(c.Status.Conditions, api.ConditionEvicted)
	reason := ""
	if evicted != nil {
		reason = string(evicted.Status) + evicted.Reason
	}
	f := fingerprint{state: fmt.Sprint(
		c.UID, c.Labels, c.Spec.Unschedulable, c.Draining(), c.Status.APIs, fleet.IsReady(c), settled(c, now),
		serving.recent(c, now), notReadyReason(c), reason, c.Spec.WorkspaceSelector,
	)}
	if c.Status.Capacity != nil {
		for _, name := range slices.Sorted(maps.Keys(c.Status.Capacity.Allocatable)) {
			q := c.Status.Capacity.Allocatable[name]
			f.room += fmt.Sprint(name, q.String(), " ")
		}
	}
	return f
}

// moveInterval is the time for which moves are counted (see schedule.MovesPerMinute).
const moveInterval = time.Minute

// moves are the replicas of a root that moved in the interval from a time.
type moves struct {
	from time.Time
	n    int64
}

// movesOf reads the annotation of a root. It is read once, after the controller has started: a user can change it.
func movesOf(root *unstructured.Unstructured) moves {
	from, n, _ := strings.Cut(root.GetAnnotations()[api.AnnotationMoves], "=")
	at, err := time.Parse(time.RFC3339, from)
	count, err2 := strconv.ParseInt(n, 10, 64)
	if err != nil || err2 != nil {
		return moves{}
	}
	return moves{at, count}
}

// now returns the moves that count now: none of an earlier interval.
func (m moves) now(now time.Time) moves {
	if age := now.Sub(m.from); age < 0 || age >= moveInterval {
		return moves{}
	}
	return m
}

func (m moves) add(n int64, now time.Time) moves {
	if m = m.now(now); m.n == 0 {
		m.from = now
	}
	m.n += n
	return m
}

// String is the annotation of a root.
func (m moves) String() string {
	return m.from.UTC().Format(time.RFC3339) + "=" + strconv.FormatInt(m.n, 10)
}

// budget returns the replicas of a workload that may move now, for schedule.Assign: schedule.Moves at a time, and
// schedule.MovesPerMinute in each interval.
func (m moves) budget(replicas int64, now time.Time) int64 {
	left := schedule.MovesPerMinute(replicas) - m.now(now).n
	if left <= 0 {
		return -1
	}
	return min(left, schedule.Moves(replicas))
}

// until returns the time until more replicas may move, and at most an interval.
func (m moves) until(now time.Time) time.Duration {
	if m = m.now(now); m.n > 0 {
		return m.from.Add(moveInterval).Sub(now)
	}
	return moveInterval
}

const (
	// reserveFor is how long replicas are reserved that were scheduled: until a report about the capacity of the
	// cluster has their pods. If there are none by then, such as because the cluster refuses them, they are not
	// reserved. A report does not say which pods it has.
	reserveFor = 90 * time.Second
	// reservePart is the part of a cluster, as its inverse, that one workspace can reserve. A workspace whose pods the
	// clusters refuse, such as because of a quota, which only the clusters know, would otherwise send others elsewhere.
	reservePart       = 2
	sweepReservations = time.Second
)

// reservation is what decisions have added to a cluster for a workload, and no report about its capacity shows yet.
type reservation struct {
	requests corev1.ResourceList
	n        int64
	until    time.Time
}

type reservations map[string]*reserved

// reserved are the reservations in a cluster, with their sums by workspace: a decision does not look at all workloads.
type reserved struct {
	items map[item]reservation
	sums  map[string]corev1.ResourceList
	swept time.Time
	// left are the resources that are left of a capacity, for a workspace without reservations. Nil: they have changed.
	left     corev1.ResourceList
	capacity *api.Capacity
}

func (r reservations) of(cluster string) *reserved {
	if r[cluster] == nil {
		r[cluster] = &reserved{items: map[item]reservation{}, sums: map[string]corev1.ResourceList{}}
	}
	return r[cluster]
}

// record records what a decision adds to the shares that there are, and to the last decision. Decisions that
// say the same reserve it once, and for a while only: kcp can refuse a leaf, or another one of its name still ends.
func (r reservations) record(sub *subject, next map[string]schedule.Share, last map[string]int64) {
	for cluster, in := range r {
		if _, ok := next[cluster]; !ok {
			in.set(sub.item, reservation{})
		}
	}
	for cluster, share := range next {
		before := last[cluster]
		if was := sub.previous[cluster]; !was.Ending {
			before = max(before, was.Replicas)
		}
		in, more := r.of(cluster), max(0, share.Replicas-before)
		is := in.items[sub.item]
		is.requests = sub.workload.Requests
		if is.n = min(is.n+more, share.Replicas); more > 0 {
			is.until = sub.now.Add(reserveFor)
		}
		in.set(sub.item, is)
	}
}

func (r reservations) forget(i item) {
	for _, in := range r {
		in.set(i, reservation{})
	}
}

// set replaces the reservation of a workload. One of no replicas is none.
func (r *reserved) set(i item, next reservation) {
	was, known := r.items[i]
	if !known && next.n == 0 {
		return
	}
	sum := r.sums[i.Cluster]
	if sum == nil {
		sum = corev1.ResourceList{}
		r.sums[i.Cluster] = sum
	}
	schedule.Add(sum, was.requests, -was.n)
	schedule.Add(sum, next.requests, next.n)
	maps.DeleteFunc(sum, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
	if len(sum) == 0 {
		delete(r.sums, i.Cluster)
	}
	r.left = nil
	if r.items[i] = next; next.n == 0 {
		delete(r.items, i)
	}
}

// free returns the resources of a cluster that are neither requested nor reserved, as a decision about a workload sees
// them, or nil if they are unknown. Each other workspace reserves at most a part of the cluster. Its own reservation
// counts only if the workload has a share there: it would otherwise keep the next decision away from the cluster, and
// the one after that would choose it again.
func (r *reserved) free(capacity *api.Capacity, i item, has bool, now time.Time) corev1.ResourceList {
	r.sweep(now)
	if capacity == nil {
		return nil
	}
	if r.left == nil || r.capacity != capacity {
		total := corev1.ResourceList{}
		for _, sum := range r.sums {
			schedule.Add(total, capped(sum, capacity.Allocatable), 1)
		}
		r.left = schedule.Free(capacity, total)
		r.capacity = capacity
	}
	own := r.sums[i.Cluster]
	if len(own) == 0 {
		return r.left
	}
	more := capped(own, capacity.Allocatable)
	schedule.Add(more, own, -1)
	if is := r.items[i]; !has {
		schedule.Add(more, is.requests, is.n)
	}
	out := corev1.ResourceList{}
	for name, q := range r.left {
		left := q.DeepCopy()
		left.Add(more[name])
		out[name] = left
	}
	return out
}

// capped returns the reservations of a workspace, but at most a part of the cluster.
func capped(sum, allocatable corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range sum {
		all, known := allocatable[name]
		if most := *resource.NewMilliQuantity(all.MilliValue()/reservePart, all.Format); known && q.Cmp(most) > 0 {
			q = most
		}
		out[name] = q
	}
	return out
}

func (r *reserved) sweep(now time.Time) {
	if now.Sub(r.swept) < sweepReservations {
		return
	}
	r.swept = now
	for i, one := range r.items {
		if !now.Before(one.until) {
			r.set(i, reservation{})
		}
	}
}

func requestsOf(root *unstructured.Unstructured) corev1.ResourceList {
	object := kinds.PodSpec(root)
	if object == nil {
		return nil
	}
	spec := &corev1.PodSpec{}
	object, _ = api.Countable(object).(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, spec); err != nil {
		return nil // kcp does not validate it as a pod: the clusters refuse it
	}
	return schedule.Requests(spec)
}

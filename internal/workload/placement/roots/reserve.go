package roots

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
)

const (
	// reserveFor is how long replicas are reserved that were scheduled: until a report about the capacity of the
	// cluster has their pods. If there are none by then, such as because the cluster refuses them, they are not
	// reserved.
	reserveFor = 90 * time.Second
	// reservePart is the part of a cluster, as its inverse, that one workspace can reserve: others are not sent
	// elsewhere by what cannot run.
	reservePart = 2
	// sweepReservations is the time between two looks for reservations that have ended.
	sweepReservations = time.Second
)

// reservation has the requests of a workload in a cluster that the reported capacity does not show yet.
type reservation struct {
	requests corev1.ResourceList
	// share are the replicas of the last decision. The leaf can get them later, such as when a leaf of the same name is
	// still being deleted.
	share int64
	// n are the replicas that are reserved, until a time.
	n     int64
	until time.Time
}

// reservations are the reservations of all workloads, by cluster. The sums are kept, so that a decision does not look
// at all workloads.
type reservations map[string]*reserved

// reserved are the reservations in a cluster.
type reserved struct {
	items map[item]*reservation
	// sums are by workspace. Parts are what counts of them for other workspaces in a cluster of this capacity, and
	// total is the sum of the parts.
	sums, parts map[string]corev1.ResourceList
	total       corev1.ResourceList
	capacity    *api.Capacity
	swept       time.Time
	// last are the free resources. Nil: the total or the capacity has changed.
	last corev1.ResourceList
}

// of returns the reservations in a cluster.
func (r reservations) of(cluster string) *reserved {
	if r[cluster] == nil {
		r[cluster] = &reserved{items: map[item]*reservation{}, sums: map[string]corev1.ResourceList{},
			parts: map[string]corev1.ResourceList{}, total: corev1.ResourceList{}}
	}
	return r[cluster]
}

// record records what a decision takes. It is rebuilt from the leaves when the controller starts.
func (r reservations) record(
	i item, requests corev1.ResourceList, d schedule.Decision, previous map[string]schedule.Share,
	leaves map[string]*unstructured.Unstructured, now time.Time,
) {
	for cluster, in := range r {
		if _, ok := d.Next[cluster]; !ok {
			in.set(i, nil)
		}
	}
	for cluster, share := range d.Next {
		in := r.of(cluster)
		was := in.items[i]
		next := reservation{requests: requests, share: share.Replicas}
		if was != nil {
			next.until = was.until
		} else {
			was = &reservation{share: previous[cluster].Replicas}
		}
		if share.Replicas > was.share || was.until.IsZero() {
			next.until = now.Add(reserveFor)
		}
		absent := max(0, share.Replicas-existing(leaves[cluster]))
		if now.Before(next.until) {
			next.n = max(absent, min(was.n+max(0, share.Replicas-was.share), share.Replicas))
		}
		if next.n+absent == 0 {
			in.set(i, nil)
			continue
		}
		in.set(i, &next)
	}
}

// existing returns the number of pods of a leaf.
func existing(leaf *unstructured.Unstructured) (n int64) {
	if leaf != nil {
		n, _, _ = unstructured.NestedInt64(leaf.Object, "status", "replicas")
	}
	return n
}

// forget removes the reservations of a workload.
func (r reservations) forget(i item) {
	for _, in := range r {
		in.set(i, nil)
	}
}

// set replaces the reservation of a workload. Nil removes it.
func (r *reserved) set(i item, next *reservation) {
	was := r.items[i]
	if was == nil && next == nil {
		return
	}
	sum := r.sums[i.Cluster]
	if sum == nil {
		sum = corev1.ResourceList{}
		r.sums[i.Cluster] = sum
	}
	was.addTo(sum, false)
	next.addTo(sum, true)
	maps.DeleteFunc(sum, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.Sign() <= 0 })
	if len(sum) == 0 {
		delete(r.sums, i.Cluster)
	}
	r.count(i.Cluster)
	if next == nil {
		delete(r.items, i)
		return
	}
	r.items[i] = next
}

// count counts what a workspace has reserved.
func (r *reserved) count(workspace string) {
	if r.capacity == nil {
		return // nothing is counted yet
	}
	r.last = nil
	for name, q := range r.parts[workspace] {
		left := r.total[name].DeepCopy()
		left.Sub(q)
		r.total[name] = left
	}
	if len(r.sums[workspace]) == 0 {
		delete(r.parts, workspace)
		return
	}
	r.parts[workspace] = capped(r.sums[workspace], r.capacity.Allocatable)
	schedule.Add(r.total, r.parts[workspace])
}

// countAll counts what all workspaces have reserved in a cluster of a capacity.
func (r *reserved) countAll(capacity *api.Capacity) {
	same := r.capacity != nil && maps.EqualFunc(r.capacity.Allocatable, capacity.Allocatable, resource.Quantity.Equal)
	r.capacity = capacity
	r.last = nil
	if same {
		return
	}
	clear(r.parts)
	clear(r.total)
	for workspace := range r.sums {
		r.count(workspace)
	}
}

// addTo adds what is reserved to a sum, or removes it.
func (r *reservation) addTo(sum corev1.ResourceList, add bool) {
	if r == nil || r.n == 0 {
		return
	}
	for name, q := range r.requests {
		all := q.DeepCopy()
		all.Mul(r.n) // without an overflow, however many replicas a user wants
		is := sum[name].DeepCopy()
		if add {
			is.Add(all)
		} else {
			is.Sub(all)
		}
		sum[name] = is
	}
}

// free returns the resources of a cluster that are neither requested nor reserved, as a workspace sees them, or nil if
// they are unknown. Each other workspace reserves at most a part of the cluster.
func (r *reserved) free(capacity *api.Capacity, workspace string, now time.Time) corev1.ResourceList {
	r.sweep(now)
	if capacity == nil {
		return nil
	}
	if r.capacity != capacity {
		r.countAll(capacity)
	}
	if r.last == nil {
		r.last = schedule.Free(capacity, r.total)
	}
	own := r.sums[workspace]
	if len(own) == 0 {
		return r.last
	}
	free := corev1.ResourceList{}
	for name, q := range r.last {
		left := q.DeepCopy()
		left.Add(r.parts[workspace][name])
		left.Sub(own[name])
		free[name] = left
	}
	return free
}

// without returns what is free if a workload has reserved nothing. What it has reserved for a leaf that is not written
// yet, such as because one of the same name is still being deleted, would keep the next decision away from the cluster,
// and the one after that would choose it again.
func (r *reserved) without(i item, free corev1.ResourceList) corev1.ResourceList {
	own := r.items[i]
	if own == nil || own.n == 0 || free == nil {
		return free
	}
	out, mine := maps.Clone(free), corev1.ResourceList{}
	own.addTo(mine, true)
	for name, q := range mine {
		if left, known := out[name]; known {
			q.Add(left)
			out[name] = q
		}
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

// sweep ends the reservations whose time has ended.
func (r *reserved) sweep(now time.Time) {
	if now.Sub(r.swept) < sweepReservations {
		return
	}
	r.swept = now
	for i, one := range r.items {
		if one.n > 0 && !now.Before(one.until) {
			next := *one
			next.n = 0
			r.set(i, &next)
		}
	}
}

// requestsOf returns what a replica of a workload requests.
func requestsOf(root *unstructured.Unstructured) corev1.ResourceList {
	object := splitter.PodSpec(root)
	if object == nil {
		return nil
	}
	spec := &corev1.PodSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, spec); err != nil {
		return nil // kcp does not validate it as a pod: the clusters refuse it
	}
	return schedule.Requests(spec)
}

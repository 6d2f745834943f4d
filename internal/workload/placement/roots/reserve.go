package roots

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

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

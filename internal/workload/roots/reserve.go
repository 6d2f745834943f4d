package roots

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/workload/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/splitter"
)

// reserveFor is how long replicas are reserved that were scheduled: until a report about the capacity of the cluster has their pods.
const reserveFor = 90 * time.Second

// reservation is what a workload will request in a cluster, and what the reported capacity does not show yet.
type reservation struct {
	requests corev1.ResourceList
	// share are the replicas of the last decision. Those of the leaf follow later, such as when one of the same name is still being deleted.
	share int64
	// absent are replicas without pods. grown are those that were scheduled until a time ago.
	absent, grown int64
	until         time.Time
}

// replicas returns the replicas that are reserved.
func (r *reservation) replicas(now time.Time) int64 {
	if now.Before(r.until) {
		return max(r.absent, r.grown)
	}
	return r.absent
}

// reserve records what a decision takes. It is rebuilt from the leaves when the controller starts. The scheduler is locked.
func (s *Scheduler) reserve(
	i item, requests corev1.ResourceList, d schedule.Decision, previous map[string]schedule.Share, leaves map[string]*unstructured.Unstructured,
) {
	now := s.Now()
	for cluster, all := range s.reserved {
		if _, ok := d.Next[cluster]; !ok {
			delete(all, i)
		}
	}
	for cluster, share := range d.Next {
		var exist int64
		if leaf := leaves[cluster]; leaf != nil {
			exist, _, _ = unstructured.NestedInt64(leaf.Object, "status", "replicas")
		}
		if s.reserved[cluster] == nil {
			s.reserved[cluster] = map[item]*reservation{}
		}
		r := s.reserved[cluster][i]
		if r == nil {
			r = &reservation{share: previous[cluster].Replicas}
			s.reserved[cluster][i] = r
		}
		r.requests, r.absent = requests, max(0, share.Replicas-exist)
		if !now.Before(r.until) {
			r.grown = 0
		}
		if grown := share.Replicas - r.share; grown > 0 {
			r.grown, r.until = r.grown+grown, now.Add(reserveFor)
		}
		r.share = share.Replicas
		if r.replicas(now) == 0 {
			delete(s.reserved[cluster], i)
		}
	}
}

// reservedIn returns what is reserved in a cluster. The scheduler is locked.
func (s *Scheduler) reservedIn(cluster string) corev1.ResourceList {
	total, now := corev1.ResourceList{}, s.Now()
	for i, r := range s.reserved[cluster] {
		n := r.replicas(now)
		if n == 0 {
			delete(s.reserved[cluster], i)
			continue
		}
		for name, q := range r.requests {
			all := q.DeepCopy()
			all.Mul(n) // without an overflow, however many replicas a user wants
			schedule.Add(total, corev1.ResourceList{name: all})
		}
	}
	return total
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

package roots

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// Limits are what one workspace may have. Zero means unlimited. A workspace that reaches one gets no leaves of other
// roots. What has leaves is not affected: they follow the root and move, and none is deleted.
type Limits struct {
	// Objects is how many leaves there may be.
	Objects int
	// Bytes is how large the objects may be that the scheduler holds, as JSON.
	Bytes int64
}

// refusal is why a root has no leaves: its workspace has what it may have. The zero value means that it may have
// leaves.
type refusal struct {
	reason string
	// has is the usage of the workspace in the message, and message the rest.
	has, message string
}

func (r refusal) exists() bool { return r.reason != "" }

// refused returns why a root may not have n leaves that would be its first ones.
func (s *Scheduler) refused(i item, root watch.Object, leaves map[string]*unstructured.Unstructured,
	n int) (r refusal) {
	if n == 0 || s.Limits == (Limits{}) || s.hasLeaf(i, root.Unstructured, leaves) {
		return r
	}
	reason, message := problemOf(root.Unstructured)
	if isRefusal(reason) && !s.completeAt(root.Endpoint) {
		return refusal{reason: reason, message: message} // after a start, the counts are not those of all objects yet
	}
	has, bytes, more := s.leavesIn(i.Cluster), int64(s.set.Usage(i.Cluster).Bytes), int64(n)*int64(watch.SizeOf(root.Object))
	switch most := s.Limits; {
	case most.Objects > 0 && has+n > most.Objects:
		r = refusal{api.ReasonTooManyObjects,
			fmt.Sprintf("%d objects of this workspace are scheduled to clusters", has), fmt.Sprintf(
				", and this one would be %d more: a workspace may have %d of them. %s", n, most.Objects, makeRoom)}
	case most.Bytes > 0 && more > most.Bytes:
		r = refusal{reason: api.ReasonTooLarge, message: fmt.Sprintf(
			"it would have %s in %d clusters, and all objects of a workspace may have %s: make it smaller, or "+
				"schedule it to fewer clusters",
			size(more), n, size(most.Bytes))}
	case most.Bytes > 0 && bytes+more > most.Bytes:
		r = refusal{api.ReasonTooLarge, fmt.Sprintf("the objects of this workspace have %s", size(bytes)), fmt.Sprintf(
			", and this one would have %s more: a workspace may have %s. %s", size(more), size(most.Bytes), makeRoom)}
	}
	// What the workspace has by now is not written to each root that is refused.
	if r.reason == reason && r.has != "" && strings.HasSuffix(message, r.message) {
		r.has = strings.TrimSuffix(message, r.message)
	}
	return r
}

// retry returns when to look again at a root whose leaf kcp may have refused, or else after an interval that is not
// longer. Zero is never.
func (r refusal) retry(again time.Duration) time.Duration {
	if r.reason == api.ReasonLeafRefused {
		return sooner(again, refusedInterval)
	}
	return again
}

// makeRoom is the advice to the user.
const makeRoom = "Delete objects that are not needed, or ask an administrator for a higher limit"

// condition returns the condition Scheduled of a root that is refused.
func (r refusal) condition(c metav1.Condition) metav1.Condition {
	if r.exists() {
		c.Status = metav1.ConditionFalse
		c.Reason = r.reason
		c.Message = r.has + r.message
	}
	return c
}

func isRefusal(reason string) bool {
	return reason == api.ReasonTooManyObjects || reason == api.ReasonTooLarge
}

// size returns a number of bytes as a quantity.
func size(bytes int64) string {
	for _, unit := range []int64{1 << 20, 1 << 10} {
		if bytes >= 10*unit {
			bytes = (bytes + unit - 1) / unit * unit
			break
		}
	}
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}

// hasLeaf reports whether a root has a leaf, or had one: a workload can be without any between two clusters.
func (s *Scheduler) hasLeaf(i item, root *unstructured.Unstructured,
	leaves map[string]*unstructured.Unstructured) bool {
	for _, leaf := range leaves {
		if splitter.IsLeafOf(leaf, root) {
			return true
		}
	}
	s.mu.Lock()
	last, givenUp := s.decided[i], make([]string, 0, len(s.givenUp))
	for name := range s.givenUp {
		givenUp = append(givenUp, name)
	}
	s.mu.Unlock()
	if last.uid == root.GetUID() && last.placed {
		return true
	}
	for _, name := range givenUp {
		k := i.Key
		k.Name = api.LeafName(root.GetName(), name)
		if leaf, ok := s.set.Get(i.GroupVersionResource, k); ok && splitter.IsLeafOf(leaf.Unstructured, root) {
			return true
		}
	}
	return false
}

// leavesIn returns how many objects of a workspace are scheduled to clusters.
func (s *Scheduler) leavesIn(workspace string) (n int) {
	for class, count := range s.set.ClassesIn(workspace) {
		if class != "" && !strings.HasPrefix(class, bindingClass) {
			n += count
		}
	}
	return n
}

// refuse records whether a root is refused.
func (s *Scheduler) refuse(i item, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := s.refusedIn[i.Cluster]
	switch {
	case refused && items == nil:
		s.refusedIn[i.Cluster] = map[item]bool{i: true}
	case refused:
		items[i] = true
	default:
		if delete(items, i); len(items) == 0 {
			delete(s.refusedIn, i.Cluster)
		}
	}
}

// mostReadmitted is how many refused roots of a workspace are looked at in one pass.
const mostReadmitted = 100

// readmit looks at refused roots of workspaces that may have more by now.
func (s *Scheduler) readmit(set *watch.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for workspace, items := range s.refusedIn {
		room := mostReadmitted
		if most := s.Limits.Objects; most > 0 {
			room = min(room, most-s.leavesIn(workspace))
		}
		if most := s.Limits.Bytes; most > 0 && int64(set.Usage(workspace).Bytes) >= most {
			room = 0
		}
		for i := range items {
			if room--; room < 0 {
				break
			}
			s.queue.Add(i)
			if splitter.CanFollow(i.GroupResource()) {
				s.queue.Add(namespace(i.Key)) // its place follows from others
			}
		}
	}
}

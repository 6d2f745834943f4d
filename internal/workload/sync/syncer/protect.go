package syncer

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// unlistedInterval is the time until a workload is tried again while what protects its pods is not listed.
const unlistedInterval = 500 * time.Millisecond

// unprotected reports whether a leaf would bring the first pods of a workload to the cluster before something that must
// exist there before them, such as a NetworkPolicy that selects them. Such a leaf waits. The error is set if the
// cluster cannot have what it waits for.
func (s *syncer) unprotected(i item, leaf watch.Object) (waits bool, _ error) {
	if !hasPods(i.GroupVersionResource) || s.present(i, leaf) != nil {
		return false, nil
	}
	first := slices.DeleteFunc(s.apis(), func(r schema.GroupVersionResource) bool { return !isFirst(r) })
	// This is known before the objects are read: otherwise, a list in between could bring one.
	if !s.up.CompleteFor([]string{leaf.Endpoint}, first) {
		s.queue.AddAfter(i, unlistedInterval)
		return true, nil
	}
	for _, r := range first {
		for _, o := range s.up.In(r, i.Cluster, i.Namespace) {
			ref := splitter.Ref{GroupResource: r.GroupResource(), Name: name(o.Unstructured)}
			if o.GetDeletionTimestamp() != nil || !kinds.IsFirst(ref.GroupResource, ref.Name) ||
				!splitter.Awaits(leaf.Unstructured, ref, o.Unstructured) || s.inForce(r, o) {
				continue
			}
			waits = true
			if problem := s.problemOf(r, o.Unstructured); problem != "" {
				return true, &refusal{api.ReasonUnprotected, fmt.Sprintf(
					"it waits for %s %s, which protects its pods and is not in cluster %s: %s", r.GroupResource(),
					name(o.Unstructured), s.Cluster, problem)}
			}
		}
	}
	return waits, nil
}

// inForce reports whether the cluster has an object as its leaf is now.
func (s *syncer) inForce(r schema.GroupVersionResource, leaf watch.Object) bool {
	key := watch.KeyOf(leaf.Unstructured)
	live := s.present(item{r, key}, leaf)
	generation := ""
	if g := leaf.GetGeneration(); g != 0 {
		generation = strconv.FormatInt(g, 10)
	}
	return live != nil && live.GetAnnotations()[annotationGeneration] == generation
}

// problemOf returns why a leaf is not synced, or "".
func (s *syncer) problemOf(r schema.GroupVersionResource, leaf *unstructured.Unstructured) string {
	if !slices.Contains(s.synced(), r) {
		return "its API is not synced to the cluster, see kcpctl workloads apis"
	}
	return api.SyncProblem(leaf)
}

// addPods syncs the workloads beside an object that has to be in the cluster before their pods.
func (s *syncer) addPods(r schema.GroupVersionResource, cluster, namespace string) {
	if !isFirst(r) {
		return
	}
	for _, workloads := range s.synced() {
		if !hasPods(workloads) {
			continue
		}
		for _, k := range s.up.KeysIn(workloads, cluster, namespace, "") {
			s.queue.Add(item{workloads, k})
		}
	}
}

// isFirst reports whether objects of a resource can have to be in a cluster before pods.
func isFirst(r schema.GroupVersionResource) bool {
	return kinds.IsFirst(r.GroupResource(), kinds.DefaultAccount)
}

// hasPods reports whether objects of a resource bring pods to a cluster.
func hasPods(r schema.GroupVersionResource) bool {
	k, _ := kinds.OfResource(r.GroupResource())
	return k.Template != nil
}

package roots

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

func refOf(i item) splitter.Ref { return splitter.Ref{GroupResource: i.GroupResource(), Name: i.Name} }

// protect writes the leaves of what has to be in a cluster before the pods of a workload, see kinds.IsFirst, before the
// workload gets its first leaf there: the syncer of the cluster applies them in this order. The decision about the
// workload is known. If one of them cannot have a leaf, it returns the reason: the workload waits. It returns when to look
// again if that is not possible yet, or zero.
func (s *Scheduler) protect(ctx context.Context, i item, changes splitter.Changes,
	leaves map[string]*unstructured.Unstructured) (r refusal, again time.Duration, _ error) {
	first := slices.ContainsFunc(changes.Apply, func(leaf *unstructured.Unstructured) bool {
		return leaves[leaf.GetLabels()[api.LabelCluster]] == nil
	})
	if !first || splitter.CanFollow(i.GroupResource()) || !s.guarded(i) {
		return r, 0, nil
	}
	sc := s.look(namespace(i.Key))
	needs := splitter.FindNeeds(sc.workloads, sc.objects)
	for ref, root := range sc.roots {
		if !kinds.IsFirst(ref.GroupResource, ref.Name) {
			continue
		}
		if !sc.complete[root.Endpoint] && splitter.SelectsNamespaces(root.Unstructured) {
			return r, incompleteInterval, nil
		}
		refused, err := s.placeNeeded(ctx, sc, ref, needs[ref])
		if err != nil {
			return r, 0, err
		}
		if refused.exists() {
			refused.message = fmt.Sprintf("it waits for %s, which protects its pods: %s", ref, refused.message)
			r = refused
		}
	}
	return r, 0, nil
}

// guarded reports whether a namespace has anything that has to be in a cluster before pods. Most have not.
func (s *Scheduler) guarded(i item) bool {
	for _, kind := range kinds.All() {
		if !kind.Guards {
			continue
		}
		if r, ok := s.resource(kind.GroupResource()); ok && len(s.set.In(r, i.Cluster, i.Namespace)) > 0 {
			return true
		}
	}
	at := watch.Key{Cluster: i.Cluster, Namespace: i.Namespace, Name: kinds.DefaultAccount}
	account, ok := s.set.Get(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), at)
	return ok && len(splitter.Dependencies(account.Unstructured)) > 0 // pull secrets
}

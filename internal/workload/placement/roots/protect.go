package roots

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// waits are the objects that are not in clusters yet, and that must exist there before a workload: see kinds.IsFirst. A
// cluster without objects waits for the controller, which has not seen all of them.
type waits map[string][]splitter.Ref

// protect removes the leaves from changes that would be the first of a workload in a cluster which does not have what
// protects its pods. It returns what they wait for, and when to look again, or zero.
func (s *Scheduler) protect(
	ctx context.Context, i item, root watch.Object, changes *splitter.Changes,
	leaves map[string]*unstructured.Unstructured,
) (waits, time.Duration, error) {
	s.setWaiting(i, false)
	var fresh []string
	for _, leaf := range changes.Apply {
		if cluster := leaf.GetLabels()[api.LabelCluster]; leaves[cluster] == nil {
			fresh = append(fresh, cluster)
		}
	}
	if len(fresh) == 0 || splitter.CanFollow(i.GroupResource()) {
		return nil, 0, nil
	}
	missing, err := s.unprotected(ctx, i, root, fresh)
	if err != nil || len(missing) == 0 {
		return nil, 0, err
	}
	s.setWaiting(i, true)
	s.hold(i, slices.Sorted(maps.Keys(missing)))
	changes.Apply = slices.DeleteFunc(changes.Apply, func(leaf *unstructured.Unstructured) bool {
		_, waits := missing[leaf.GetLabels()[api.LabelCluster]]
		return waits
	})
	for _, refs := range missing {
		if len(refs) == 0 {
			return missing, startInterval, nil
		}
	}
	return missing, incompleteInterval, nil
}

// setWaiting records whether a workload waits. Only then is it scheduled again by follow: before the leaves of another
// one come back with the watch, the next decision could differ.
func (s *Scheduler) setWaiting(i item, waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiting {
		s.gated[i] = true
	} else {
		delete(s.gated, i)
	}
}

// hold records that a workload has not got its leaves in clusters: the next decision does not expect them.
func (s *Scheduler) hold(i item, clusters []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.decided[i]; ok {
		d.held = clusters
		s.decided[i] = d
	}
}

// unprotected returns the clusters in which a workload would be without something that protects its pods. Its decision
// is known.
func (s *Scheduler) unprotected(ctx context.Context, i item, root watch.Object, clusters []string) (waits, error) {
	unseen, err := s.unseen(ctx, i, root)
	if err != nil {
		return nil, err
	}
	if unseen {
		out := waits{}
		for _, c := range clusters {
			out[c] = nil
		}
		return out, nil
	}
	if !s.guarded(i) {
		return nil, nil
	}
	sc := s.look(namespace(i.Key))
	return sc.unprotected(splitter.FindNeeds(sc.workloads, sc.objects), refOf(i).String(), clusters), nil
}

func refOf(i item) splitter.Ref { return splitter.Ref{GroupResource: i.GroupResource(), Name: i.Name} }

// unseen reports whether the namespace of a workload has an object that protects pods and that the watch has not shown
// yet: what a user creates before a workload can be seen after it.
func (s *Scheduler) unseen(ctx context.Context, i item, root watch.Object) (bool, error) {
	for _, kind := range kinds.All() {
		r, ok := s.resource(kind.GroupResource())
		if !kind.Guards || !ok {
			continue
		}
		client, err := s.set.Resource(root.Endpoint, i.Cluster, r)
		if err != nil {
			return false, err
		}
		list, err := client.Namespace(i.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "!" + api.LabelCluster})
		if apierrors.IsNotFound(err) {
			continue // the workspace does not have the API yet
		}
		if err != nil {
			return false, fmt.Errorf("list %s in namespace %s of logical cluster %s: %w", kind.GroupResource(),
				i.Namespace, i.Cluster, err)
		}
		for n := range list.Items {
			o := &list.Items[n]
			seen, ok := s.set.Get(r, watch.KeyOf(o))
			if !ok || watch.VersionOf(seen.Unstructured) != watch.VersionOf(o) {
				return true, nil
			}
		}
	}
	return false, nil
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

// unprotected returns what a workload waits for in clusters.
func (sc *scene) unprotected(needs splitter.Needs, workload string, clusters []string) waits {
	out := waits{}
	for ref := range sc.roots {
		if !kinds.IsFirst(ref.GroupResource, ref.Name) {
			continue
		}
		for _, c := range clusters {
			if slices.Contains(needs[ref][c], workload) && !sc.inForce(ref, c) {
				out[c] = append(out[c], ref)
			}
		}
	}
	return out
}

// inForce reports whether a cluster has an object as it is now, which its syncer records in AnnotationSynced.
func (sc *scene) inForce(ref splitter.Ref, cluster string) bool {
	root := sc.roots[ref].Unstructured
	leaf := sc.leaves[ref][cluster]
	if leaf == nil || leaf.GetDeletionTimestamp() != nil || !splitter.IsLeafOf(leaf, root) {
		return false
	}
	a := leaf.GetAnnotations()
	current := root.GetGeneration() == 0 ||
		a[api.AnnotationRootGeneration] == strconv.FormatInt(root.GetGeneration(), 10)
	return current && a[api.AnnotationSynced] == strconv.FormatInt(leaf.GetGeneration(), 10)
}

// waited reports whether the leaf of a workload can be written to a cluster that does not have it.
func (sc *scene) waited(i item, root watch.Object, needs splitter.Needs) bool {
	if !sc.waiting[i] {
		return false
	}
	ref := refOf(i)
	without := slices.DeleteFunc(slices.Clone(sc.decided[splitter.TargetOf(ref, root.Unstructured)].clusters),
		func(c string) bool {
			return sc.present[ref.String()][c] != nil
		})
	return len(without) > 0 && len(sc.unprotected(needs, ref.String(), without)) < len(without)
}

// condition returns the condition Scheduled of a workload that waits. Another problem comes first.
func (w waits) condition(c metav1.Condition) metav1.Condition {
	if len(w) == 0 || c.Status != metav1.ConditionTrue {
		return c
	}
	var parts []string
	for _, cluster := range slices.Sorted(maps.Keys(w)) {
		var names []string
		for _, ref := range w[cluster] {
			names = append(names, ref.String())
		}
		slices.Sort(names)
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%s does not have %s yet", cluster, strings.Join(names, ", ")))
		}
	}
	if len(parts) == 0 {
		return c // for a moment
	}
	c.Status = metav1.ConditionFalse
	c.Reason = api.ReasonUnprotected
	c.Message = "it waits for what protects its pods: " + strings.Join(parts, "; ")
	return c
}

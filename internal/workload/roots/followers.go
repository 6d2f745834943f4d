package roots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/workload/api"
	"github.com/kcpctl/kcpctl/internal/workload/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/watch"
)

// incompleteInterval is the time until a namespace is looked at again of which something could not be listed.
const incompleteInterval = 5 * time.Second

// scene is what is in a namespace.
type scene struct {
	resources []schema.GroupVersionResource
	clusters  []string
	// roots are those that are where workloads need them, and objects are the roots that workloads can need.
	roots   map[splitter.Ref]watch.Object
	objects map[splitter.Ref]*unstructured.Unstructured
	items   map[splitter.Ref]item
	// leaves are those of these roots, and other objects that a user has given the names of leaves.
	leaves map[splitter.Ref]map[string]*unstructured.Unstructured
	// workloads are the leaves of workloads, and roots with the clusters that they were scheduled to.
	workloads []splitter.Placed
	// pending are the roots of workloads.
	pending map[item]watch.Object
}

// follow writes the leaves of the objects in a namespace that are where workloads need them. It returns when to look again, or zero.
func (s *Scheduler) follow(ctx context.Context, ns item) (again time.Duration, _ error) {
	sc := s.look(ns)
	needs := splitter.FindNeeds(sc.workloads, sc.objects)
	var problems []error
	for _, ref := range slices.SortedFunc(maps.Keys(sc.roots), func(a, b splitter.Ref) int { return cmp.Compare(a.String(), b.String()) }) {
		complete := s.set.CompleteAt(sc.roots[ref].Endpoint)
		if !complete {
			again = incompleteInterval
		}
		if err := s.place(ctx, sc, ref, sc.wanted(ref, needs[ref]), complete); err != nil {
			problems = append(problems, err)
		}
	}
	for i, root := range sc.pending {
		if wants(root.Unstructured, s.hintsOf(i)) || stale(root.Unstructured, s.missing(i, root)) {
			s.queue.Add(i)
		}
	}
	return again, errors.Join(problems...)
}

// look returns what is in a namespace.
func (s *Scheduler) look(ns item) *scene {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := &scene{
		resources: s.published.watched(), roots: map[splitter.Ref]watch.Object{}, objects: map[splitter.Ref]*unstructured.Unstructured{},
		items: map[splitter.Ref]item{}, leaves: map[splitter.Ref]map[string]*unstructured.Unstructured{}, pending: map[item]watch.Object{},
	}
	for _, c := range s.clusters {
		sc.clusters = append(sc.clusters, c.Name)
	}
	for _, r := range sc.resources {
		for _, o := range s.set.In(r, ns.Cluster, ns.Namespace) {
			s.see(sc, r, o)
		}
	}
	return sc
}

// see adds an object to a scene. The scheduler is locked.
func (s *Scheduler) see(sc *scene, r schema.GroupVersionResource, o watch.Object) {
	gr, i := r.GroupResource(), item{r, watch.KeyOf(o.Unstructured)}
	ref := splitter.Ref{GroupResource: gr, Name: o.GetName()}
	cluster := o.GetLabels()[api.LabelCluster]
	root := splitter.Ref{GroupResource: gr, Name: o.GetAnnotations()[api.AnnotationName]}
	switch {
	case splitter.CanFollow(gr) && s.published.removed(r):
	case splitter.CanFollow(gr) && cluster != "":
		if sc.leaves[root] == nil {
			sc.leaves[root] = map[string]*unstructured.Unstructured{}
		}
		sc.leaves[root][cluster] = o.Unstructured
	case splitter.CanFollow(gr):
		sc.objects[ref], sc.items[ref] = o.Unstructured, i
		if splitter.Follows(gr, o.Unstructured) && o.GetDeletionTimestamp() == nil {
			sc.roots[ref] = o
		}
	case cluster != "":
		if root.Name == "" {
			root = ref // a user has created it
		}
		sc.workloads = append(sc.workloads, splitter.Placed{Ref: root, Object: o.Unstructured, Clusters: []string{cluster}})
	case o.GetDeletionTimestamp() == nil:
		sc.workloads = append(sc.workloads, splitter.Placed{Ref: ref, Object: o.Unstructured, Clusters: s.decided[i].clusters})
		sc.pending[i] = o
	}
}

// wanted returns the leaves that a root should have: where workloads need it. Where that is not known, and where it has data, they stay.
func (sc *scene) wanted(ref splitter.Ref, needed map[string][]string) map[string]splitter.Share {
	shares := map[string]splitter.Share{}
	for cluster, by := range needed {
		if slices.Contains(sc.clusters, cluster) {
			shares[cluster] = splitter.Share{NeededBy: by}
		}
	}
	for cluster, leaf := range sc.leaves[ref] {
		by := strings.FieldsFunc(leaf.GetAnnotations()[api.AnnotationNeededBy], func(r rune) bool { return r == ',' })
		unknown := !slices.Contains(sc.clusters, cluster) || slices.ContainsFunc(by, func(w string) bool { return !sc.watches(w) })
		if _, ok := shares[cluster]; !ok && (unknown || splitter.KeepsData(ref.GroupResource)) && splitter.IsLeafOf(leaf, sc.roots[ref].Unstructured) {
			shares[cluster] = splitter.Share{NeededBy: by}
		}
	}
	return shares
}

// watches reports whether the resource of a workload, as in the annotation needed-by, is watched: whether the workload exists is known.
func (sc *scene) watches(workload string) bool {
	resource, _, _ := strings.Cut(workload, "/")
	return slices.ContainsFunc(sc.resources, func(r schema.GroupVersionResource) bool { return r.GroupResource().String() == resource })
}

// place writes the leaves of a root, and where they are. Leaves are deleted only if everything could be listed.
func (s *Scheduler) place(ctx context.Context, sc *scene, ref splitter.Ref, shares map[string]splitter.Share, complete bool) error {
	root, i, leaves := sc.roots[ref], sc.items[ref], s.collisions(sc, ref, shares)
	if _, placed := root.GetAnnotations()[api.AnnotationPlacement]; !placed && len(shares)+len(leaves) == 0 && !hasStatus(i) {
		return nil // such as a ConfigMap that no workload needs
	}
	want, err := splitter.Leaves(root.Unstructured, shares)
	if err != nil {
		return err
	}
	changes := splitter.Compare(root.Unstructured, want, slices.Collect(maps.Values(leaves)))
	if !complete {
		changes.Delete = nil
	}
	if _, err := s.write(ctx, i, root, changes); err != nil {
		return err
	}
	d := schedule.Decision{Next: map[string]schedule.Share{}, Goal: map[string]int64{}}
	for _, c := range slices.Sorted(slices.Values(sc.clusters)) {
		v := schedule.Verdict{Cluster: c, Reason: "no workload there needs it"}
		if share, ok := shares[c]; ok {
			v.Chosen, v.Reason = true, "needed by "+strings.Join(share.NeededBy, ", ")
		}
		d.Verdicts = append(d.Verdicts, v)
	}
	for name := range shares {
		d.Next[name], d.Goal[name] = schedule.Share{}, 0
	}
	scheduled := condition(d, changes, nil, s.missing(i, root), s.Now())
	if len(shares) == 0 {
		scheduled.Reason, scheduled.Message = api.ReasonNotNeeded, "no workload needs it, so it is on no cluster"
		scheduled.Status = metav1.ConditionFalse
	}
	return s.writeStatus(ctx, &subject{item: i, root: root, leaves: leaves}, d, true, scheduled)
}

// collisions returns the leaves of a root, and the objects that have the names of leaves which it should have.
func (s *Scheduler) collisions(sc *scene, ref splitter.Ref, shares map[string]splitter.Share) map[string]*unstructured.Unstructured {
	out := map[string]*unstructured.Unstructured{}
	maps.Copy(out, sc.leaves[ref])
	for cluster := range shares {
		if o := sc.objects[splitter.Ref{GroupResource: ref.GroupResource, Name: api.LeafName(ref.Name, cluster)}]; o != nil {
			out[cluster] = o
		}
	}
	return out
}

// hasStatus reports whether objects of an item's resource have a status.
func hasStatus(i item) bool { return !slices.Contains(api.Dependencies(), i.GroupVersionResource) }

// missing returns the objects that a root needs, and that do not exist.
func (s *Scheduler) missing(i item, root watch.Object) []splitter.Ref {
	var out []splitter.Ref
	for _, d := range splitter.Dependencies(root.Unstructured) {
		if d.Optional {
			continue
		}
		if r, ok := s.resource(d.GroupResource); ok {
			if !s.set.ListedAt(watch.Source{Endpoint: root.Endpoint, Resource: r}) {
				continue // it may exist
			}
			if _, ok := s.set.Get(r, watch.Key{Cluster: i.Cluster, Namespace: i.Namespace, Name: d.Name}); ok {
				continue
			}
		}
		out = append(out, d.Ref)
	}
	return out
}

// describe returns the message about what is missing.
func describe(missing []splitter.Ref) string {
	var names []string
	for _, m := range missing {
		names = append(names, m.String())
	}
	if len(names) == 1 {
		return fmt.Sprintf("%s does not exist: create it in this namespace", names[0])
	}
	return fmt.Sprintf("%s do not exist: create them in this namespace", strings.Join(names, ", "))
}

// wants reports whether a workload depends on where others in its namespace are.
func wants(root *unstructured.Unstructured, namespace map[string]string) bool {
	for _, key := range []string{api.AnnotationAffinity, api.AnnotationAntiAffinity} {
		if root.GetAnnotations()[key] != "" || namespace[key] != "" {
			return true
		}
	}
	return false
}

// stale reports whether the condition of a workload is not what is missing now.
func stale(root *unstructured.Unstructured, missing []splitter.Ref) bool {
	reason, message := problemOf(root)
	if reason != api.ReasonDependencyMissing {
		return len(missing) > 0 && (reason == "" || reason == api.ReasonScheduled)
	}
	return len(missing) == 0 || message != describe(missing)
}

// problemOf returns the reason and the message of the condition Scheduled, or of the annotation that stands for it.
func problemOf(root *unstructured.Unstructured) (reason, message string) {
	if text, ok := root.GetAnnotations()[api.AnnotationScheduleError]; ok {
		reason, message, _ = strings.Cut(text, ": ")
		return reason, message
	}
	if c := api.ConditionIn(root, api.ConditionScheduled); c != nil {
		return c.Reason, c.Message
	}
	return "", ""
}

package roots

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// incompleteInterval is the time until a namespace is looked at again of which something could not be listed.
const incompleteInterval = 5 * time.Second

// follow writes the leaves of the objects in a namespace that are where workloads need them. It returns when to look
// again, or zero.
func (s *Scheduler) follow(ctx context.Context, ns item) (again time.Duration, _ error) {
	sc := s.look(ns)
	needs := splitter.FindNeeds(sc.workloads, sc.objects)
	var problems []error
	for _, ref := range sc.refs() {
		if !sc.complete[sc.roots[ref].Endpoint] {
			again = incompleteInterval
		}
		refused, err := s.placeNeeded(ctx, sc, ref, needs[ref])
		again = refused.retry(again)
		problems = append(problems, err)
	}
	for i, root := range sc.pending {
		open := wants(root.Unstructured, s.hintsOf(i)) || stale(root.Unstructured, s.lacks(i, root))
		if open || sc.rescaled(i, root) {
			s.queue.Add(i)
		}
	}
	return again, errors.Join(problems...)
}

// placeNeeded writes the leaves of a root where workloads need it. It returns why kcp refuses one.
func (s *Scheduler) placeNeeded(ctx context.Context, sc *scene, ref splitter.Ref,
	needed map[string][]string) (refusal, error) {
	complete := sc.complete[sc.roots[ref].Endpoint]
	shares, known := sc.divided(ref, sc.wanted(ref, needed, complete))
	if !known {
		return "", nil // it is looked at again after the decision about what it scales
	}
	return s.place(ctx, sc, ref, shares, complete)
}

// place writes the leaves of a root, and where they are. Leaves are deleted only if everything could be listed. It
// returns why kcp refuses one.
func (s *Scheduler) place(ctx context.Context, sc *scene, ref splitter.Ref, shares map[string]splitter.Share,
	complete bool) (refused refusal, _ error) {
	root, i, leaves := sc.roots[ref], sc.items[ref], s.collisions(sc, ref, shares)
	if _, placed := root.GetAnnotations()[api.AnnotationPlacement]; !placed && len(shares)+len(leaves) == 0 &&
		!kinds.HasStatus(i.GroupResource()) {
		return refused, nil // such as a ConfigMap that no workload needs
	}
	whole := root.Unstructured
	if splitter.SelectsNamespaces(whole) {
		if !complete {
			return refused, nil // it could miss a namespace
		}
		s.selects(i)
		whole = splitter.WithNamespaces(whole, s.namespacesOf(i.Cluster))
	}
	want, err := splitter.Leaves(whole, shares)
	if err != nil {
		return refused, err
	}
	changes := splitter.Compare(root.Unstructured, want, slices.Collect(maps.Values(leaves)))
	if !complete {
		changes.Delete = nil
	}
	if _, refused, err = s.write(ctx, i, root, changes); err != nil {
		return refused, err
	}
	d := schedule.Decision{Next: map[string]schedule.Share{}, Goal: map[string]int64{}}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		d.Next[name], d.Goal[name] = schedule.Share{}, 0
		d.Verdicts = append(d.Verdicts, schedule.Verdict{Cluster: name, Chosen: true,
			Reason: "needed by " + strings.Join(shares[name].NeededBy, ", ")})
	}
	scheduled := condition(d, changes, nil, s.lacks(i, root), s.Now())
	if len(shares) == 0 {
		scheduled.Reason = api.ReasonNotNeeded
		scheduled.Message = "no workload needs it, so it is on no cluster"
		scheduled.Status = metav1.ConditionFalse
	}
	sub := &subject{item: i, root: root, leaves: leaves}
	return refused, s.writeStatus(ctx, sub, d, true, refused.condition(scheduled))
}

// namespacesOf returns the labels of the namespaces of a workspace, by name.
func (s *Scheduler) namespacesOf(workspace string) map[string]labels.Set {
	out := map[string]labels.Set{}
	for _, ns := range s.set.In(api.Namespaces(), workspace, "") {
		out[ns.GetName()] = ns.GetLabels()
	}
	return out
}

// followSelected looks again at what selects namespaces of a workspace.
func (s *Scheduler) followSelected(workspace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.selecting[workspace] {
		s.queue.Add(namespace(watch.Key{Cluster: workspace, Namespace: name}))
	}
}

// selects remembers that something in the namespace of an item selects namespaces of its workspace, before they are
// read: from then on, their changes lead to it.
func (s *Scheduler) selects(i item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.selecting[i.Cluster] == nil {
		s.selecting[i.Cluster] = map[string]bool{}
	}
	s.selecting[i.Cluster][i.Namespace] = true
}

// collisions returns the leaves of a root, and the objects that have the names of leaves which it should have.
func (s *Scheduler) collisions(sc *scene, ref splitter.Ref,
	shares map[string]splitter.Share) map[string]*unstructured.Unstructured {
	out := map[string]*unstructured.Unstructured{}
	maps.Copy(out, sc.leaves[ref])
	for cluster := range shares {
		if o := sc.objects[splitter.Ref{GroupResource: ref.GroupResource, Name: api.LeafName(ref.Name, cluster)}]; o != nil {
			out[cluster] = o
		}
	}
	return out
}

// lacks returns the message about what a root needs that does not exist, or that its workspace may not have in
// clusters. It is empty if nothing is lacking.
func (s *Scheduler) lacks(i item, root watch.Object) string {
	var missing []splitter.Ref
	refused := ""
	for _, d := range splitter.Dependencies(root.Unstructured) {
		if d.Optional {
			continue
		}
		r, ok := s.resource(d.GroupResource)
		if !ok {
			missing = append(missing, d.Ref)
			continue
		}
		switch o, exists := s.set.Get(r, watch.Key{Cluster: i.Cluster, Namespace: i.Namespace, Name: d.Name}); {
		case exists:
			if reason, message := problemOf(o.Unstructured); reason == api.ReasonLeafRefused {
				refused = cmp.Or(refused, fmt.Sprintf("%s: %s", d.Ref, message))
			}
			refused = cmp.Or(refused, s.unsynced(i, root.Unstructured, item{r, watch.KeyOf(o.Unstructured)}))
		case s.set.ListedAt(watch.Source{Endpoint: root.Endpoint, Resource: r}): // otherwise it may exist
			missing = append(missing, d.Ref)
		}
	}
	if len(missing) > 0 {
		return describe(missing)
	}
	return cmp.Or(refused, s.misnamed(i, root.Unstructured))
}

// misnamed returns the message about a Service that a container names with its namespace, which has another name in
// clusters, or "". What a container reads from a ConfigMap is not known. The message has no other text of the
// container.
func (s *Scheduler) misnamed(i item, root *unstructured.Unstructured) string {
	names := splitter.ServiceNames(root)
	services, ok := s.resource(corev1.Resource("services"))
	if len(names) == 0 || !ok {
		return ""
	}
	for _, n := range names {
		if _, ok := s.set.Get(services, watch.Key{Cluster: i.Cluster, Namespace: n.Namespace, Name: n.Service}); !ok {
			continue
		}
		use := n.Service + "." + api.DownstreamNamespace(s.Setup, i.Cluster, n.Namespace)
		if n.Namespace == i.Namespace {
			use = n.Service
		}
		return fmt.Sprintf("a container names Service %[1]s as %[1]s.%[2]s, and clusters do not have this name, "+
			"because namespace %[2]s has another name there: use %[3]s", n.Service, n.Namespace, use)
	}
	return ""
}

// unsynced returns the message about a leaf that a root needs, and that its syncer cannot write to its cluster, or "".
func (s *Scheduler) unsynced(i item, root *unstructured.Unstructured, needed item) string {
	var placement api.Placement
	_ = json.Unmarshal([]byte(root.GetAnnotations()[api.AnnotationPlacement]), &placement) // nothing if it is not valid
	s.mu.Lock()
	on := slices.Concat(s.decided[i].clusters, slices.Collect(maps.Keys(placement)))
	s.mu.Unlock()
	slices.Sort(on)
	for _, cluster := range slices.Compact(on) {
		leaf, ok := s.beside(needed, api.LeafName(needed.Name, cluster))
		if !ok {
			continue
		}
		problem := leaf.GetAnnotations()[api.AnnotationSyncError]
		if c := api.ConditionIn(leaf.Unstructured, api.ConditionSynced); c != nil && c.Status == metav1.ConditionFalse {
			problem = c.Reason + ": " + c.Message
		}
		if problem != "" {
			return fmt.Sprintf("cluster %s does not have %s: %s", cluster,
				splitter.Ref{GroupResource: needed.GroupResource(), Name: needed.Name}, problem)
		}
	}
	return ""
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

// stale reports whether the condition of a workload is not what it lacks now.
func stale(root *unstructured.Unstructured, lacks string) bool {
	reason, message := problemOf(root)
	if reason != api.ReasonDependencyMissing {
		return lacks != "" && (reason == "" || reason == api.ReasonScheduled)
	}
	return message != lacks
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

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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
	"github.com/kcpctl/kcpctl/internal/workload/placement/splitter"
	"github.com/kcpctl/kcpctl/internal/workload/sync/watch"
)

// incompleteInterval is the time until a namespace is looked at again of which something could not be listed.
const incompleteInterval = 5 * time.Second

// followers writes the leaves of the objects that are where workloads need them.
type followers struct {
	*view
	decisions *decisions
	writer    *writer
	again     func(item)
}

// follow writes the leaves of the objects in a namespace that are where workloads need them.
func (f *followers) follow(ctx context.Context, ns item) (again time.Duration, _ error) {
	sc := f.look(ns)
	needs := splitter.FindNeeds(sc.workloads, sc.objects)
	var problems []error
	for _, ref := range sc.refs() {
		if !sc.complete[sc.roots[ref].Endpoint] {
			again = incompleteInterval
		}
		refused, report, err := f.placeNeeded(ctx, sc, ref, needs[ref])
		if again = refused.retry(again); report != nil {
			err = report()
		}
		problems = append(problems, err)
	}
	for i, root := range sc.pending {
		last, _ := f.decisions.of(i)
		waits := last.home != "" && len(last.clusters) == 0 // for a cluster with a claim, which can be deleted
		open := wants(root.Unstructured, f.hintsOf(i)) || stale(root.Unstructured, f.lacks(i, root))
		if open || waits || sc.rescaled(i, root) {
			f.again(i)
		}
	}
	return again, errors.Join(problems...)
}

// placeNeeded writes the leaves of a root where workloads need it, see place.
func (f *followers) placeNeeded(ctx context.Context, sc *scene, ref splitter.Ref,
	needed map[string][]string) (_ refusal, report func() error, _ error) {
	complete := sc.complete[sc.roots[ref].Endpoint]
	shares, known := sc.divided(ref, sc.wanted(ref, needed, complete))
	if !known {
		return "", nil, nil // it is looked at again after the decision about what it scales
	}
	return f.place(ctx, sc, ref, shares, complete)
}

// place writes the leaves of a root. It returns why kcp refuses one, and a function that writes the status of the root,
// unless that is not needed. Leaves are deleted only if everything could be listed.
func (f *followers) place(ctx context.Context, sc *scene, ref splitter.Ref, shares map[string]splitter.Share,
	complete bool) (refused refusal, report func() error, _ error) {
	root, i, leaves := sc.roots[ref], sc.items[ref], sc.collisions(ref, shares)
	if _, placed := root.GetAnnotations()[api.AnnotationPlacement]; !placed && len(shares)+len(leaves) == 0 &&
		!kinds.HasStatus(i.GroupResource()) {
		return refused, nil, nil // such as a ConfigMap that no workload needs
	}
	whole := root.Unstructured
	if splitter.SelectsNamespaces(whole) {
		if !complete {
			return refused, nil, nil // it could miss a namespace
		}
		whole = splitter.WithNamespaces(whole, f.namespacesOf(i.Cluster))
	}
	want, err := splitter.Leaves(whole, shares)
	if err != nil {
		return refused, nil, err
	}
	changes := splitter.Compare(root.Unstructured, want, slices.Collect(maps.Values(leaves)))
	if !complete {
		changes.Delete = nil
	}
	if _, refused, err = f.writer.write(ctx, i, root, changes); err != nil {
		return refused, nil, err
	}
	d := decisionOf(shares)
	scheduled := condition(d, changes, nil, f.lacks(i, root))
	if len(shares) == 0 {
		scheduled = api.Not(api.ConditionScheduled, api.ReasonNotNeeded, "no workload needs it, so it is on no cluster")
	}
	sub := &subject{item: i, root: root, leaves: leaves}
	return refused, func() error {
		return f.writer.writeStatus(ctx, sub, d, true, refused.condition(scheduled))
	}, nil
}

// mostNames is how many workloads the reason of a cluster names: a namespace can have thousands of them, and kcp limits
// the size of all annotations together.
const mostNames = 3

func decisionOf(shares map[string]splitter.Share) schedule.Decision {
	d := schedule.Decision{Next: map[string]schedule.Share{}, Goal: map[string]int64{}}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		d.Next[name] = schedule.Share{}
		d.Goal[name] = 0
		by := shares[name].NeededBy
		if more := len(by) - mostNames; more > 1 {
			by = append(slices.Clone(by[:mostNames]), fmt.Sprintf("%d others", more))
		}
		d.Verdicts = append(d.Verdicts, schedule.Verdict{Cluster: name, Chosen: true,
			Reason: "needed by " + strings.Join(by, ", ")})
	}
	return d
}

// followSelected looks again at the namespaces of a workspace with an object that selects namespaces.
func (f *followers) followSelected(workspace string) {
	for _, r := range f.guards() {
		for name := range f.namespacesOf(workspace) {
			selects := func(o watch.Object) bool { return splitter.SelectsNamespaces(o.Unstructured) }
			if slices.ContainsFunc(f.set().In(r, workspace, name), selects) {
				f.again(namespace(watch.Key{Cluster: workspace, Namespace: name}))
			}
		}
	}
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

func refOf(i item) splitter.Ref { return splitter.Ref{GroupResource: i.GroupResource(), Name: i.Name} }

// protect writes the leaves of what has to be in a cluster before the pods of a workload, see kinds.IsFirst, before the
// workload gets its first leaf there: the syncer of the cluster applies them in this order. So does the leaf of a claim
// if one cluster gets it: wherever such a workload is, other ones find it. The decision about the workload is known. If
// something that the workload needs there cannot have a leaf, it returns the reason: the workload waits. It does not
// wait for a status.
func (f *followers) protect(ctx context.Context, sub *subject, changes splitter.Changes) (
	r refusal, again time.Duration, _ error) {
	i := sub.item
	var fresh []string
	for _, leaf := range changes.Apply {
		if cluster := leaf.GetLabels()[api.LabelCluster]; sub.leaves[cluster] == nil {
			fresh = append(fresh, cluster)
		}
	}
	claimed := len(fresh) == 1 && len(sub.claims) > 0
	if len(fresh) == 0 || splitter.CanFollow(i.GroupResource()) || !claimed && !f.guarded(i) {
		return r, 0, nil
	}
	sc := f.look(namespace(i.Key))
	needs := splitter.FindNeeds(sc.workloads, sc.objects)
	for _, ref := range sc.refs() { // sorted: the same refusal is returned each time
		root := sc.roots[ref]
		if !kinds.IsFirst(ref.GroupResource, ref.Name) && !(claimed && splitter.KeepsData(ref.GroupResource)) {
			continue
		}
		if !sc.complete[root.Endpoint] && splitter.SelectsNamespaces(root.Unstructured) {
			return r, incompleteInterval, nil
		}
		refused, _, err := f.placeNeeded(ctx, sc, ref, needs[ref])
		if err != nil {
			return r, 0, err
		}
		needed := slices.ContainsFunc(fresh, func(c string) bool {
			return slices.Contains(needs[ref][c], refOf(i).String())
		})
		if refused != "" && needed && r == "" {
			r = refusal(fmt.Sprintf("it waits for %s, which its pods need first: %s", ref, refused))
		}
	}
	return r, 0, nil
}

// lacks returns the message about what a root needs that does not exist, or that is not in its clusters.
func (f *followers) lacks(i item, root watch.Object) string {
	var missing []splitter.Ref
	refused := ""
	for _, d := range splitter.Dependencies(root.Unstructured) {
		if d.Optional {
			continue
		}
		r, ok := f.resource(d.GroupResource)
		if !ok {
			missing = append(missing, d.Ref)
			continue
		}
		switch o, exists := f.set().Get(r, watch.Key{Cluster: i.Cluster, Namespace: i.Namespace, Name: d.Name}); {
		case exists:
			if reason, message := problemOf(o.Unstructured); reason == api.ReasonLeafRefused {
				refused = cmp.Or(refused, fmt.Sprintf("%s: %s", d.Ref, message))
			}
			refused = cmp.Or(refused, f.unsynced(i, root.Unstructured, item{r, watch.KeyOf(o.Unstructured)}))
		case f.set().ListedAt(watch.Source{Endpoint: root.Endpoint, Resource: r}): // otherwise it may exist
			missing = append(missing, d.Ref)
		}
	}
	if len(missing) > 0 {
		return describe(missing)
	}
	return cmp.Or(refused, f.misnamed(i, root.Unstructured))
}

// misnamed returns the message about a Service that a container names with its namespace, which has another name in
// clusters, or "". What a container reads from a ConfigMap is not known. The message has no other text of the
// container.
func (f *followers) misnamed(i item, root *unstructured.Unstructured) string {
	names := splitter.ServiceNames(root)
	services, ok := f.resource(corev1.Resource("services"))
	if len(names) == 0 || !ok {
		return ""
	}
	for _, n := range names {
		if _, ok := f.set().Get(services, watch.Key{Cluster: i.Cluster, Namespace: n.Namespace, Name: n.Service}); !ok {
			continue
		}
		use := n.Service + "." + api.DownstreamNamespace(f.Setup, i.Cluster, n.Namespace)
		if n.Namespace == i.Namespace {
			use = n.Service
		}
		return fmt.Sprintf("a container names Service %[1]s as %[1]s.%[2]s, and clusters do not have this name, "+
			"because namespace %[2]s has another name there: use %[3]s", n.Service, n.Namespace, use)
	}
	return ""
}

// unsynced returns the message about a leaf that a root needs, and that its syncer cannot write to its cluster, or "".
func (f *followers) unsynced(i item, root *unstructured.Unstructured, needed item) string {
	last, _ := f.decisions.of(i)
	on := slices.Concat(last.clusters, placedOn(root))
	slices.Sort(on)
	for _, cluster := range slices.Compact(on) {
		leaf, ok := f.beside(needed, api.LeafName(needed.Name, cluster))
		if !ok {
			continue
		}
		if problem := api.SyncProblem(leaf.Unstructured); problem != "" {
			return fmt.Sprintf("cluster %s does not have %s: %s", cluster,
				splitter.Ref{GroupResource: needed.GroupResource(), Name: needed.Name}, problem)
		}
	}
	return ""
}

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

package roots

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

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

// follow writes the leaves of the objects in a namespace that are where workloads need them. It returns when to look
// again, or zero.
func (f *followers) follow(ctx context.Context, ns item) (again time.Duration, _ error) {
	sc := f.look(ns)
	needs := splitter.FindNeeds(sc.workloads, sc.objects)
	var problems []error
	for _, ref := range sc.refs() {
		if !sc.complete[sc.roots[ref].Endpoint] {
			again = incompleteInterval
		}
		refused, err := f.placeNeeded(ctx, sc, ref, needs[ref])
		again = refused.retry(again)
		problems = append(problems, err)
	}
	for i, root := range sc.pending {
		open := wants(root.Unstructured, f.hintsOf(i)) || stale(root.Unstructured, f.lacks(i, root))
		if open || sc.rescaled(i, root) {
			f.again(i)
		}
	}
	return again, errors.Join(problems...)
}

// placeNeeded writes the leaves of a root where workloads need it. It returns why kcp refuses one.
func (f *followers) placeNeeded(ctx context.Context, sc *scene, ref splitter.Ref,
	needed map[string][]string) (refusal, error) {
	complete := sc.complete[sc.roots[ref].Endpoint]
	shares, known := sc.divided(ref, sc.wanted(ref, needed, complete))
	if !known {
		return "", nil // it is looked at again after the decision about what it scales
	}
	return f.place(ctx, sc, ref, shares, complete)
}

// place writes the leaves of a root, and where they are. Leaves are deleted only if everything could be listed. It
// returns why kcp refuses one.
func (f *followers) place(ctx context.Context, sc *scene, ref splitter.Ref, shares map[string]splitter.Share,
	complete bool) (refused refusal, _ error) {
	root, i, leaves := sc.roots[ref], sc.items[ref], sc.collisions(ref, shares)
	if _, placed := root.GetAnnotations()[api.AnnotationPlacement]; !placed && len(shares)+len(leaves) == 0 &&
		!kinds.HasStatus(i.GroupResource()) {
		return refused, nil // such as a ConfigMap that no workload needs
	}
	whole := root.Unstructured
	if splitter.SelectsNamespaces(whole) {
		if !complete {
			return refused, nil // it could miss a namespace
		}
		whole = splitter.WithNamespaces(whole, f.namespacesOf(i.Cluster))
	}
	want, err := splitter.Leaves(whole, shares)
	if err != nil {
		return refused, err
	}
	changes := splitter.Compare(root.Unstructured, want, slices.Collect(maps.Values(leaves)))
	if !complete {
		changes.Delete = nil
	}
	if _, refused, err = f.writer.write(ctx, i, root, changes); err != nil {
		return refused, err
	}
	d := decisionOf(shares)
	scheduled := condition(d, changes, nil, f.lacks(i, root))
	if len(shares) == 0 {
		scheduled = api.Not(api.ConditionScheduled, api.ReasonNotNeeded, "no workload needs it, so it is on no cluster")
	}
	sub := &subject{item: i, root: root, leaves: leaves}
	return refused, f.writer.writeStatus(ctx, sub, d, true, refused.condition(scheduled))
}

func decisionOf(shares map[string]splitter.Share) schedule.Decision {
	d := schedule.Decision{Next: map[string]schedule.Share{}, Goal: map[string]int64{}}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		d.Next[name] = schedule.Share{}
		d.Goal[name] = 0
		d.Verdicts = append(d.Verdicts, schedule.Verdict{Cluster: name, Chosen: true,
			Reason: "needed by " + strings.Join(shares[name].NeededBy, ", ")})
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

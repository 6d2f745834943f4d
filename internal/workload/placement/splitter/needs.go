package splitter

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/api/kinds"
)

// Placed is a workload and its clusters, or an object that brings others, such as a ServiceAccount with pull secrets.
type Placed struct {
	Ref
	Object   *unstructured.Unstructured
	Clusters []string
}

// Needs has the clusters in which a dependency is needed, and the workloads that need it there.
type Needs map[Ref]map[string][]string

// FindNeeds returns the dependencies of the workloads of a namespace, and the dependencies of these: the objects that
// they name, the objects that select their pods or scale them, and the Ingresses of Services. A Service without a
// selector is needed by all workloads, and so is an object that guards connections and selects none of them: it can be
// for the next pods. Objects are the roots in the namespace.
func FindNeeds(workloads []Placed, all map[Ref]*unstructured.Unstructured) Needs {
	n := &needs{objects: all, ingresses: map[string][]Ref{}, found: Needs{}}
	with := n.attach(workloads)
	for i, w := range workloads {
		n.workload = w
		n.name = w.String()
		n.seen = map[Ref]bool{w.Ref: true}
		n.follow(w.Object)
		for _, ref := range with[i] {
			n.need(Dependency{Ref: ref})
		}
	}
	for _, clusters := range n.found {
		for cluster, by := range clusters {
			slices.Sort(by)
			clusters[cluster] = slices.Compact(by) // a workload and its leaf have one name
		}
	}
	return n.found
}

// NeedsOf identifies what FindNeeds reads of a workload: what its pods name, and the labels by which others select
// them.
func NeedsOf(u *unstructured.Unstructured) string {
	pods, _ := podLabels(u)
	return fmt.Sprint(Dependencies(u), " ", pods)
}

type needs struct {
	objects   map[Ref]*unstructured.Unstructured
	ingresses map[string][]Ref // by the name of a Service
	found     Needs
	// workload is the one whose needs are found, name is the text of its Ref, and seen are the objects that it needs.
	workload Placed
	name     string
	seen     map[Ref]bool
}

// attach returns the objects that select the pods of each workload, or scale it.
func (n *needs) attach(workloads []Placed) map[int][]Ref {
	pods := indexOf(workloads)
	scaled := map[Target][]int{}
	for i, w := range workloads {
		target := TargetOf(w.Ref, w.Object)
		scaled[target] = append(scaled[target], i)
	}
	with := map[int][]Ref{}
	for ref, o := range n.objects {
		kind, _ := kinds.OfResource(ref.GroupResource)
		var attached []int
		switch {
		case ref.GroupResource == ingresses:
			for _, d := range Dependencies(o) {
				if d.GroupResource == services {
					n.ingresses[d.Name] = append(n.ingresses[d.Name], ref)
				}
			}
		case kind.TargetPath != nil:
			if target, ok := ScaledBy(o); ok {
				attached = scaled[target]
			}
		case kind.Selects != kinds.NoSelection:
			attached = pods.selected(o, kind)
		}
		for _, i := range attached {
			with[i] = append(with[i], ref)
		}
	}
	return with
}

func (n *needs) follow(u *unstructured.Unstructured) {
	for _, d := range Dependencies(u) {
		n.need(d)
	}
}

// adds reports whether an object adds something to what each namespace of a cluster has by itself: the account default
// is only there for its pull secrets.
func adds(ref Ref, u *unstructured.Unstructured) bool {
	return !kinds.IsEverywhere(ref.GroupResource, ref.Name) || len(objects(u.Object, "imagePullSecrets")) > 0
}

func (n *needs) need(d Dependency) {
	if n.seen[d.Ref] {
		return
	}
	n.seen[d.Ref] = true
	u := n.objects[d.Ref]
	if u == nil || !adds(d.Ref, u) {
		return
	}
	if n.found[d.Ref] == nil {
		n.found[d.Ref] = map[string][]string{}
	}
	for _, c := range n.workload.Clusters {
		n.found[d.Ref][c] = append(n.found[d.Ref][c], n.name)
	}
	switch d.GroupResource {
	case ingresses: // it is needed where one of its Services is, and does not bring the others there
		for _, next := range Dependencies(u) {
			if next.GroupResource != services {
				n.need(next)
			}
		}
		return
	case services:
		for _, i := range n.ingresses[d.Name] {
			n.need(Dependency{Ref: i})
		}
	}
	n.follow(u)
}

// Target is what an autoscaler scales.
type Target struct {
	schema.GroupKind
	Name string
}

// TargetOf returns a workload as the target of an autoscaler.
func TargetOf(ref Ref, u *unstructured.Unstructured) Target {
	return Target{u.GroupVersionKind().GroupKind(), ref.Name}
}

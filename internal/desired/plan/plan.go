// Package plan describes what an apply changes: the differences between rendered and live objects.
package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Action is what happens to an object.
type Action string

const (
	Create    Action = "create"
	Change    Action = "change"
	Unchanged Action = "unchanged"
	Delete    Action = "delete"
	// Unknown is the action of objects on clusters that cannot be reached: the plan leaves them alone. It is also that
	// of objects in workspaces while kcp does not answer: they are compared when it does, before they are applied.
	Unknown Action = "unknown"
	// Keep is the action of objects in workspaces that the setup no longer has and that hold data. Only a run that is
	// told to deletes them.
	Keep Action = "keep"
)

// Ref names an object.
type Ref struct {
	// Cluster is the name of the cluster in the setup. It is empty with --local.
	Cluster string
	// Workspace is the full path of the workspace of kcp that the object is in, such as root:team-a. Then it is on no
	// cluster. It is empty for objects of clusters.
	Workspace string
	schema.GroupVersionKind
	Namespace, Name string
}

// String returns Deployment/kcp/demo-root, Namespace/kcp, or APIBinding/widgets in root:team-a.
func (r Ref) String() string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	if r.Workspace != "" {
		name += " in " + r.Workspace
	}
	return r.Kind + "/" + name
}

// RefOf returns the reference to an object on a cluster.
func RefOf(cluster string, o *unstructured.Unstructured) Ref {
	return Ref{Cluster: cluster, GroupVersionKind: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// RefIn returns the reference to an object in a workspace.
func RefIn(workspace string, o *unstructured.Unstructured) Ref {
	r := RefOf("", o)
	r.Workspace = workspace
	return r
}

// Item is one object of a plan.
type Item struct {
	Ref
	// Component is the component that the object belongs to.
	Component topology.ID
	Action    Action
	// Want is the rendered object. It is nil for a deletion.
	Want *unstructured.Unstructured
	// Live is the current object, nil if it does not exist. Merged is the object after the apply.
	Live, Merged *unstructured.Unstructured
	// Used means that the setup uses the object, and creates it if it does not exist, but does not own it.
	Used bool
	// Note is a note for users about the object.
	Note string
	// Here names the object on this machine, where there are no objects: a process, or files. It is empty on clusters.
	Here Thing
}

// Thing is what an object is on this machine.
type Thing string

// The things on this machine.
const (
	Process Thing = "process"
	Files   Thing = "files"
)

// String names the object, or what it is on this machine.
func (i Item) String() string {
	if i.Here != "" {
		return string(i.Here) + "/" + i.Name
	}
	return i.Ref.String()
}

// Things counts items in words: 7 objects, or on this machine a process and its files.
func Things(items []Item) string {
	is := func(t Thing) func(Item) bool { return func(i Item) bool { return i.Here == t } }
	process := slices.ContainsFunc(items, is(Process))
	files := slices.ContainsFunc(items, is(Files))
	switch {
	case process && files:
		return "a process and its files"
	case process:
		return "a process"
	case files:
		return "files"
	case len(items) == 1:
		return "1 object"
	}
	return fmt.Sprintf("%d objects", len(items))
}

// Plan is everything that an apply changes.
type Plan struct {
	// Items are in the order of their components.
	Items []Item
	// Unreachable are the clusters that the plan skips: the action of their objects is Unknown, and objects that the
	// setup no longer has are not among the items.
	Unreachable []Unreachable
	// NoAnswer is why objects in workspaces could not be compared. Nil: they were.
	NoAnswer error
	// Conflicts prevent the plan from being applied unless they are forced.
	Conflicts []Conflict
	// Stale reports that metadata of the setup must be updated, such as its inventory, even if no object changes.
	Stale bool
	// Reasons are what else of the setup makes it stale, such as a cluster that the setup no longer has.
	Reasons []string
	// Unfinished are the runs that have not finished, and make it stale.
	Unfinished []string
}

// Count returns the number of items with an action.
func (p *Plan) Count(a Action) int {
	n := 0
	for i := range p.Items {
		if p.Items[i].Action == a {
			n++
		}
	}
	return n
}

// Changes returns how many objects the plan changes.
func (p *Plan) Changes() int {
	return len(p.Items) - p.Count(Unchanged) - p.Count(Unknown) - p.Count(Keep)
}

// Empty reports whether the plan changes nothing.
func (p *Plan) Empty() bool { return p.Changes() == 0 && !p.Stale }

// Of returns the items of a component that the apply creates or changes, and the items in workspaces that it compares
// first.
func (p *Plan) Of(id topology.ID) []Item {
	var out []Item
	for _, it := range p.Items {
		if it.Component == id &&
			(it.Action == Create || it.Action == Change || it.Action == Unknown && it.Workspace != "") {
			out = append(out, it)
		}
	}
	return out
}

// Deletions returns the items that the apply deletes.
func (p *Plan) Deletions() []Item {
	var out []Item
	for _, it := range p.Items {
		if it.Action == Delete {
			out = append(out, it)
		}
	}
	return out
}

// Summary returns a line such as 14 create, 2 change, 0 delete, 21 unchanged. With clusters that cannot be reached it
// ends in 9 unknown (on us).
func (p *Plan) Summary() string {
	var parts []string
	for _, a := range []Action{Create, Change, Delete, Unchanged} {
		parts = append(parts, fmt.Sprintf("%d %s", p.Count(a), a))
	}
	if n := p.Count(Keep); n > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", n, Keep))
	}
	places := ClustersOf(p.Unreachable)
	if p.NoAnswer != nil {
		places = append(places, "workspaces")
	}
	for _, it := range p.Items {
		if it.Action == Unknown && topology.IsKubernetes(it.Workspace) && !slices.Contains(places, it.Workspace) {
			places = append(places, it.Workspace)
		}
	}
	if n := p.Count(Unknown); n > 0 {
		parts = append(parts, fmt.Sprintf("%d %s (on %s)", n, Unknown, strings.Join(places, ", ")))
	}
	return strings.Join(parts, ", ")
}

// Notes returns what a user should know about objects of the plan.
func (p *Plan) Notes() []string {
	var out []string
	for _, it := range p.Items {
		if it.Note != "" {
			out = append(out, it.String()+": "+it.Note)
		}
	}
	return out
}

// Kept returns the items of objects that the setup no longer has and that hold data.
func (p *Plan) Kept() []Item {
	return slices.DeleteFunc(slices.Clone(p.Items), func(it Item) bool { return it.Action != Keep })
}

// Split divides items into those that fit and the others.
func Split(items []Item, fits func(Item) bool) (in, out []Item) {
	in = slices.DeleteFunc(slices.Clone(items), func(it Item) bool { return !fits(it) })
	out = slices.DeleteFunc(slices.Clone(items), fits)
	return in, out
}

// InWorkspaces separates the items in workspaces from the items of clusters.
func InWorkspaces(items []Item) (inside, outside []Item) {
	return Split(items, func(it Item) bool { return it.Workspace != "" })
}

// Same reports whether two states of an object are equal, except for fields that the API server manages: the status,
// and parts of the metadata.
func Same(a, b *unstructured.Unstructured) bool {
	am, _ := a.Object["metadata"].(map[string]any)
	bm, _ := b.Object["metadata"].(map[string]any)
	return sameBut(a.Object, b.Object, "metadata", "status") &&
		sameBut(am, bm, "managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
}

// sameBut reports whether two maps are equal except for some keys.
func sameBut(a, b map[string]any, except ...string) bool {
	for k, v := range a {
		if slices.Contains(except, k) {
			continue
		}
		if w, ok := b[k]; !ok || !reflect.DeepEqual(v, w) {
			return false
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok && !slices.Contains(except, k) {
			return false
		}
	}
	return true
}

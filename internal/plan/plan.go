// Package plan holds what an apply would change: the difference between rendered and live objects.
package plan

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/topology"
)

// Action is what happens to an object.
type Action string

// The actions.
const (
	Create    Action = "create"
	Change    Action = "change"
	Unchanged Action = "unchanged"
	Delete    Action = "delete"
)

// Ref names an object.
type Ref struct {
	// Cluster is the name of the cluster in the setup; empty on this machine.
	Cluster string
	schema.GroupVersionKind
	Namespace, Name string
}

// String is how users see an object: Deployment/kcp/demo-root, or Namespace/kcp.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + "/" + r.Name
	}
	return r.Kind + "/" + r.Namespace + "/" + r.Name
}

// RefOf names an object on a cluster.
func RefOf(cluster string, o *unstructured.Unstructured) Ref {
	return Ref{Cluster: cluster, GroupVersionKind: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Item is one object of a plan.
type Item struct {
	Ref
	// Component is the component that the object belongs to.
	Component topology.ID
	Action    Action
	// Want is the rendered object. It is nil for a deletion.
	Want *unstructured.Unstructured
	// Live is the object as it is, nil if it is not there; Merged is what it would be after the apply.
	Live, Merged *unstructured.Unstructured
}

// Conflict is a field that another field manager owns and that the plan would change.
type Conflict struct {
	Ref     `json:"-"`
	Object  string `json:"object"`
	Field   string `json:"field"`
	Manager string `json:"manager"`
}

// Plan is everything that an apply would do.
type Plan struct {
	// Items are in the order of their components.
	Items []Item
	// Conflicts keep the plan from being applied unless they are forced.
	Conflicts []Conflict
	// Stale says that what was remembered of the setup, such as its inventory, differs from what will be, though no object
	// does.
	Stale bool
}

// Count returns how many items have an action.
func (p *Plan) Count(a Action) int {
	n := 0
	for i := range p.Items {
		if p.Items[i].Action == a {
			n++
		}
	}
	return n
}

// Empty tells whether there is nothing to do.
func (p *Plan) Empty() bool { return p.Count(Unchanged) == len(p.Items) && !p.Stale }

// Of returns the items of a component that are to be created or changed.
func (p *Plan) Of(id topology.ID) []Item {
	var out []Item
	for _, it := range p.Items {
		if it.Component == id && (it.Action == Create || it.Action == Change) {
			out = append(out, it)
		}
	}
	return out
}

// Deletions returns the items that are to be deleted.
func (p *Plan) Deletions() []Item {
	var out []Item
	for _, it := range p.Items {
		if it.Action == Delete {
			out = append(out, it)
		}
	}
	return out
}

// Summary is one line: 14 create, 2 change, 0 delete, 21 unchanged.
func (p *Plan) Summary() string {
	var parts []string
	for _, a := range []Action{Create, Change, Delete, Unchanged} {
		parts = append(parts, fmt.Sprintf("%d %s", p.Count(a), a))
	}
	return strings.Join(parts, ", ")
}

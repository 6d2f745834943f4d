package record

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Placed is an object in a workspace of kcp that a run has applied. Runs look for those that the setup no longer has.
type Placed struct {
	Workspace string      `json:"workspace"`
	Component topology.ID `json:"component"`
	Group     string      `json:"group,omitempty"`
	Version   string      `json:"version"`
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace,omitempty"`
	Name      string      `json:"name"`
}

// Ref returns the reference to the object.
func (p Placed) Ref() plan.Ref {
	return plan.Ref{
		Workspace: p.Workspace, GroupVersionKind: schema.GroupVersionKind{Group: p.Group,
			Version: p.Version, Kind: p.Kind},
		Namespace: p.Namespace, Name: p.Name,
	}
}

func placedOf(it plan.Item) Placed {
	return Placed{
		Workspace: it.Workspace, Component: it.Component, Group: it.Group, Version: it.Version, Kind: it.Kind,
		Namespace: it.Namespace, Name: it.Name,
	}
}

func (p Placed) compare(o Placed) int {
	return cmp.Or(
		cmp.Compare(p.Workspace, o.Workspace), cmp.Compare(p.Group, o.Group), cmp.Compare(p.Kind, o.Kind),
		cmp.Compare(p.Namespace, o.Namespace), cmp.Compare(p.Name, o.Name), cmp.Compare(p.Version, o.Version),
		cmp.Compare(p.Component, o.Component),
	)
}

// SetPlaced records the objects in workspaces after a plan was applied. Objects that the setup uses and does not own
// are not recorded. A plan that is limited to some components keeps what it does not mention, and forgets what it
// deletes.
func (r *Record) SetPlaced(p *plan.Plan, limited bool) {
	var all []Placed
	if limited {
		all = slices.DeleteFunc(slices.Clone(r.Placed), func(o Placed) bool {
			return slices.ContainsFunc(p.Items,
				func(it plan.Item) bool { return it.Action == plan.Delete && it.Ref == o.Ref() })
		})
	}
	for _, it := range p.Items {
		if it.Workspace != "" && it.Action != plan.Delete && !it.Used {
			all = append(all, placedOf(it))
		}
	}
	r.Placed = sortedPlaced(all)
}

// Entitles reports whether an object of a component gives its user rights in a workspace.
func Entitles(ref plan.Ref, component topology.ID) bool {
	k := component.Kind()
	return ref.Kind == "ClusterRoleBinding" && !topology.IsKubernetes(ref.Workspace) &&
		(k.HasUser() || k == topology.Kubeconfig)
}

// Entitled returns the components whose users have rights in workspaces, except for kubeconfigs: the setup file names
// their users.
func (r *Record) Entitled() map[topology.ID]bool {
	out := map[topology.ID]bool{}
	if r == nil {
		return out
	}
	for _, o := range r.Placed {
		if Entitles(o.Ref(), o.Component) && o.Component.Kind().HasUser() {
			out[o.Component] = true
		}
	}
	return out
}

// WithPlaced returns the record with the objects in workspaces of another one too: what may exist while a run writes.
// It has the agents of the other one, until the run has removed or changed them.
func (r *Record) WithPlaced(o *Record) *Record {
	out := r.clone()
	out.Placed = sortedPlaced(append(slices.Clone(r.Placed), o.Placed...))
	out.Agents = maps.Clone(o.Agents)
	return out
}

// sortedPlaced sorts objects, each once: the component of an object can change.
func sortedPlaced(all []Placed) []Placed {
	slices.SortStableFunc(all, Placed.compare)
	return slices.CompactFunc(all, func(a, b Placed) bool { return a.Ref() == b.Ref() })
}

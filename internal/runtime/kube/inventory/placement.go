package inventory

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Placement is a namespace of a cluster that a setup is on.
type Placement struct {
	Name       string    `json:"name"`
	Context    string    `json:"context,omitempty"`
	Kubeconfig string    `json:"kubeconfig,omitempty"`
	Namespace  string    `json:"namespace"`
	UID        types.UID `json:"uid,omitempty"`
	// As and AsGroups are the user and the groups that the setup file names for this cluster.
	As       string   `json:"as,omitempty"`
	AsGroups []string `json:"asGroups,omitempty"`
	// Forgotten is when a user said that the cluster, which the setup has left, is lost for good. The cluster is kept
	// in the inventory, so that a run that reaches it after all removes what is left there.
	Forgotten string `json:"forgotten,omitempty"`
}

// PlacementOf is the placement on a connected cluster.
func PlacementOf(cl *cluster.Client) Placement {
	return Placement{
		Name: cl.Name, Context: cl.KubeContext, Kubeconfig: cl.Kubeconfig, Namespace: cl.Namespace, UID: cl.UID,
		As: cl.As, AsGroups: cl.AsGroups,
	}
}

// Cluster is the cluster as a setup names it.
func (p Placement) Cluster() topology.Cluster {
	return topology.Cluster{
		Name: p.Name, Context: p.Context, Kubeconfig: p.Kubeconfig, Namespace: p.Namespace, As: p.As,
		AsGroups: p.AsGroups,
	}
}

// Equal reports whether two placements are equal in all fields.
func (p Placement) Equal(o Placement) bool {
	same := slices.Equal(p.AsGroups, o.AsGroups)
	p.AsGroups = nil
	o.AsGroups = nil
	return same && reflect.DeepEqual(p, o)
}

// SameName reports whether two placements have the same name and namespace in the setup. They may be on different
// clusters.
func (p Placement) SameName(o Placement) bool { return p.Name == o.Name && p.Namespace == o.Namespace }

// SamePlace reports whether two placements are one namespace of one cluster. If a UID is unknown, their contexts are
// compared.
func (p Placement) SamePlace(o Placement) bool {
	if p.UID != "" && o.UID != "" {
		return p.UID == o.UID && p.Namespace == o.Namespace
	}
	return p.Context == o.Context && p.Namespace == o.Namespace
}

// Merge returns the previous placement if the two differ only in the name of the context, which depends on the user, or
// in a UID that the user may not read, with the user that the setup names now. Otherwise it returns p.
func (p Placement) Merge(previous Placement) Placement {
	if previous.SameName(p) && (previous.UID == p.UID || p.UID == "") {
		previous.As = p.As
		previous.AsGroups = p.AsGroups
		return previous
	}
	return p
}

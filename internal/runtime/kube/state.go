package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/inventory"
)

// annotationCreatedBy is on a namespace that a setup has created, and names the setup.
const annotationCreatedBy = v1alpha1.Group + "/created-by-setup"

// clusterState is the state of a setup on a cluster.
type clusterState struct {
	*cluster.Client
	// namespace is nil if it does not exist, and empty if the user may not read it.
	namespace *unstructured.Unstructured
	inventory *inventory.Inventory
	// members are the objects that the setup has applied.
	members map[plan.Ref]*unstructured.Unstructured
}

// observer reads the state of the clusters of a setup.
type observer struct {
	topology     *topology.Topology
	clusters     *clusters
	inventories  *inventory.Store
	installation *installation
}

// observe reads the state of all clusters. The home cluster comes first.
func (o *observer) observe(ctx context.Context) ([]*clusterState, error) {
	if err := o.clusters.everywhere(ctx, func(context.Context, *cluster.Client) error { return nil }); err != nil {
		return nil, err
	}
	if err := o.installation.verifyDistinct(ctx); err != nil {
		return nil, err
	}
	states := []*clusterState{{Client: o.clusters.home}}
	for _, cl := range o.clusters.others() {
		states = append(states, &clusterState{Client: cl})
	}
	if err := parallel.Each(ctx, states, o.observeOne); err != nil {
		return nil, err
	}
	noted, err := o.installation.witnesses.installation(ctx, o.clusters.home)
	if err != nil {
		return nil, err
	}
	return states, o.installation.verifyOwners(states, noted)
}

// observeOne fills in the state of a cluster.
func (o *observer) observeOne(ctx context.Context, s *clusterState) error {
	reads := []func(context.Context) error{
		func(ctx context.Context) (err error) { s.namespace, err = s.ReadNamespace(ctx); return err },
		func(ctx context.Context) (err error) {
			s.inventory, err = o.inventories.Read(ctx, s.Client)
			return err
		},
		func(ctx context.Context) (err error) {
			s.members, err = members(ctx, s.Client, o.topology, always)
			return err
		},
	}
	err := parallel.Each(ctx, reads,
		func(ctx context.Context, read func(context.Context) error) error { return read(ctx) })
	if err != nil {
		return err
	}
	left := slices.Contains(o.clusters.previous.get(), s.Client)
	more, err := members(ctx, s.Client, o.topology, optional(s.inventory, left))
	maps.Copy(s.members, more)
	return err
}

// always reports whether every setup may have objects of a kind.
func always(k kind.Kind) bool { return !k.Optional }

// optional reports for an optional kind whether a setup may have objects of it. An inventory has every kind before the
// first object of the kind exists, so setups without them send no request for them. If the inventory of a place that
// the setup has left is gone, because its namespace was deleted, objects without a namespace may remain there.
func optional(inv *inventory.Inventory, left bool) func(kind.Kind) bool {
	lost := left && !inv.Exists()
	return func(k kind.Kind) bool {
		return k.Optional && (lost || slices.Contains(inv.Kinds, k.GroupKind().String()))
	}
}

// objects returns everything that the setup has applied, except namespaces, in the order of the components.
func (o *observer) objects(ctx context.Context) ([]plan.Item, error) {
	states, err := o.observe(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := o.installation.verify(ctx, states[0].inventory); err != nil {
		return nil, err
	}
	var out []plan.Item
	for _, s := range states {
		for ref, u := range s.members {
			out = append(out, plan.Item{
				Ref: ref, Component: topology.IDFromLabels(u.GetLabels()), Action: plan.Unchanged, Live: u,
			})
		}
	}
	order := map[topology.ID]int{}
	for i, c := range o.topology.Components {
		order[c.ID()] = i - len(o.topology.Components) // components that the setup no longer has come last
	}
	slices.SortFunc(out, func(a, b plan.Item) int {
		if d := order[a.Component] - order[b.Component]; d != 0 {
			return d
		}
		return strings.Compare(a.Cluster+" "+a.String(), b.Cluster+" "+b.String())
	})
	return out, nil
}

// members returns the objects of some kinds on a cluster that the setup has applied.
func members(
	ctx context.Context, cl *cluster.Client, t *topology.Topology, hold func(kind.Kind) bool,
) (map[plan.Ref]*unstructured.Unstructured, error) {
	all := slices.DeleteFunc(slices.Clone(kind.Applied),
		func(k kind.Kind) bool { return k.Kind == kind.Namespace.Kind || k.Shared || !hold(k) })
	lists := make([][]unstructured.Unstructured, len(all))
	err := parallel.Each(ctx, parallel.Indices(all), func(ctx context.Context, i int) (err error) {
		lists[i], err = cl.List(ctx, all[i], topology.LabelApplySet+"="+t.ApplySet(cl.Cluster))
		return err
	})
	out := map[plan.Ref]*unstructured.Unstructured{}
	for i, k := range all {
		for j := range lists[i] {
			out[cl.Ref(k, lists[i][j].GetName())] = &lists[i][j]
		}
	}
	return out, err
}

// stateFor returns the state of the cluster that an object is for.
func stateFor(all []*clusterState, o render.Object) (*clusterState, error) {
	for _, s := range all {
		if s.Name == o.Cluster && (o.GetNamespace() == "" || o.GetNamespace() == s.Namespace) {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s is for cluster %q, which the setup does not have",
		o.Ref(), o.Cluster)
}

// prunable returns deletions of the objects that the setup has applied and no longer wants.
func (s *clusterState) prunable(wanted []plan.Item) []plan.Item {
	want := map[plan.Ref]bool{}
	for i := range wanted {
		want[wanted[i].Ref] = true
	}
	var out []plan.Item
	for ref, o := range s.members {
		if k, err := kind.Of(ref.GroupVersionKind); err == nil && !k.Persistent && !want[ref] {
			out = append(out, plan.Item{Ref: ref, Component: topology.IDFromLabels(o.GetLabels()),
				Action: plan.Delete, Live: o})
		}
	}
	slices.SortFunc(out, func(a, b plan.Item) int {
		return strings.Compare(string(a.Component)+" "+a.String(), string(b.Component)+" "+b.String())
	})
	return out
}

// ownsNamespace reports whether the setup has created a namespace. Any other namespace is not changed.
func ownsNamespace(t *topology.Topology, ns *unstructured.Unstructured) bool {
	return ns.GetAnnotations()[annotationCreatedBy] == t.Name
}

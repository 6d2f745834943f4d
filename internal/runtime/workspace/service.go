package workspace

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/record"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
)

// planClusters adds the objects on clusters to a plan. They do not need kcp.
func (r *Runtime) planClusters(ctx context.Context, p *plan.Plan, wanted []render.Object, placed []record.Placed,
	o run.PlanOptions) error {
	if len(wanted)+len(placed) == 0 {
		return nil
	}
	s, err := r.clusters(ctx)
	if err != nil {
		return err
	}
	return s.addTo(ctx, p, wanted, placed, o)
}

// withCredentials returns objects of the runtime below, with the credentials of agents on this machine as they are, or
// as placeholders.
func (r *Runtime) withCredentials(ctx context.Context, all []render.Object) ([]render.Object, error) {
	var applied map[plan.Ref]*unstructured.Unstructured
	for i, object := range all {
		if !isCredential(object.Unstructured) {
			continue
		}
		if applied == nil {
			before, err := r.Runtime.Objects(ctx)
			if err != nil {
				return nil, err
			}
			applied = map[plan.Ref]*unstructured.Unstructured{}
			for _, it := range before {
				applied[it.Ref] = it.Live
			}
		}
		s, err := r.clusters(ctx)
		if err != nil {
			return nil, err
		}
		if all[i].Unstructured, err = s.withCredential(ctx, applied[plan.RefOf("", object.Unstructured)], object.Unstructured, false); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func isCredential(o *unstructured.Unstructured) bool {
	return o.GetAnnotations()[topology.AnnotationCredential] != ""
}

// issue completes an object of the runtime below: if it is the credential of an agent on this machine and no longer
// fits, a new one is issued.
func (r *Runtime) issue(ctx context.Context, it *plan.Item) error {
	if it.Want == nil || !isCredential(it.Want) {
		return nil
	}
	s, err := r.clusters(ctx)
	if err == nil {
		it.Want, err = s.withCredential(ctx, it.Live, it.Want, true)
	}
	return err
}

// clusterAt returns the client for a place on a cluster, and nil for other places.
func (r *Runtime) clusterAt(ctx context.Context, place string) (Physical, error) {
	if !topology.IsKubernetes(place) {
		return nil, nil
	}
	s, err := r.clusters(ctx)
	if err != nil {
		return nil, err
	}
	return s.on(place)
}

// Read returns an object on the cluster of a component, or nil if it does not exist. For a physical cluster, this is
// the cluster itself; for an agent on this machine, the cluster whose APIs it publishes.
func (r *Runtime) Read(
	ctx context.Context, c *topology.Component, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	place := ""
	switch {
	case c.Kind == topology.Physical:
		place = topology.OnPhysical(c.Name)
	case c.Agent != nil:
		place = c.Agent.ServicePlace
	}
	cluster, err := r.clusterAt(ctx, place)
	if err != nil {
		return nil, err
	}
	if cluster == nil {
		return r.Runtime.Read(ctx, c, gvk, namespace, name)
	}
	return cluster.Object(ctx, plan.Ref{GroupVersionKind: gvk, Namespace: namespace, Name: name})
}

// Find returns objects of a kind: one, or the objects of a namespace that a selector matches.
func (r *Runtime) Find(ctx context.Context, at plan.Ref, selector string) ([]unstructured.Unstructured, error) {
	cluster, err := r.clusterAt(ctx, at.Workspace)
	if err != nil {
		return nil, err
	}
	if cluster == nil {
		return r.Runtime.Find(ctx, at, selector)
	}
	if at.Name == "" {
		return cluster.Objects(ctx, at, selector)
	}
	o, err := cluster.Object(ctx, at)
	if err != nil || o == nil {
		return nil, err
	}
	return []unstructured.Unstructured{*o}, nil
}

// Purge deletes everything that Delete keeps: first the namespaces that the setup has created on clusters of agents, if
// they are empty.
func (r *Runtime) Purge(ctx context.Context) error {
	purged := map[string]bool{}
	for _, c := range r.topology.OfKind(topology.Agent) {
		place := c.Agent.ServicePlace
		if !topology.IsKubernetes(place) || purged[place] {
			continue
		}
		purged[place] = true
		if err := r.purgeNamespace(ctx, place, c.ServiceNamespace()); err != nil {
			return err
		}
	}
	return r.Runtime.Purge(ctx)
}

func (r *Runtime) purgeNamespace(ctx context.Context, place, name string) error {
	s, err := r.clusters(ctx)
	if err != nil {
		return err
	}
	at := plan.Ref{Workspace: place, GroupVersionKind: kind.Namespace.GroupVersionKind, Name: name}
	ns, err := s.object(ctx, at)
	if cannotAnswer(at, err) || errors.As(err, new(configError)) { // the user has agreed to leave its objects behind
		r.notify(fmt.Sprintf("Namespace/%s in %s stays: %v", name, place, err))
		return nil
	}
	if err != nil || ns == nil || !s.owns(ns) || ns.GetDeletionTimestamp() != nil {
		return err
	}
	cluster, err := s.on(place)
	if err != nil {
		return err
	}
	rest, err := cluster.DeleteNamespace(ctx, ns)
	if err == nil && rest != "" {
		r.notify(fmt.Sprintf("Namespace/%s in %s is kept: it still holds %s", name, place, rest))
	}
	return err
}

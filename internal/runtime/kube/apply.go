package kube

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/plan"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
	"github.com/kcpctl/kcpctl/internal/runtime/kube/observe"
)

// applier writes and deletes the objects of a setup.
type applier struct {
	topology  *topology.Topology
	clusters  *clusters
	workloads *observe.Observer
}

// Apply writes objects kind by kind, and the objects of one kind in parallel.
func (a *applier) Apply(ctx context.Context, items []plan.Item, o run.PlanOptions) error {
	for _, k := range kind.Applied {
		other := func(it plan.Item) bool { return it.GroupVersionKind != k.GroupVersionKind }
		same := slices.DeleteFunc(slices.Clone(items), other)
		err := parallel.Each(ctx, same,
			func(ctx context.Context, it plan.Item) error { return a.applyOne(ctx, it, o.Force) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) applyOne(ctx context.Context, it plan.Item, force bool) error {
	cl, err := a.clusters.of(ctx, it.Ref)
	if err != nil {
		return err
	}
	if it.Kind == kind.Namespace.Kind && it.Action == plan.Create {
		if owned, err := a.createNamespace(ctx, cl); err != nil || !owned {
			return err
		}
	}
	if it.Live != nil && plan.LeavesReplicas(it.Want) {
		if err := cl.LeaveReplicas(ctx, it.Ref); err != nil {
			return err
		}
	}
	out, err := cl.Apply(ctx, it.Want, object.ApplyOptions{Force: force})
	switch {
	case isOptionalPatch(it, err):
		return nil
	case err != nil:
		return cl.Rejected(it.Ref, err)
	}
	if it.Kind == kind.Namespace.Kind {
		if err := cl.LeaveNamespace(ctx, annotationCreatedBy); err != nil {
			return err
		}
	}
	a.workloads.Applied(it.Ref, out)
	for _, k := range kind.Applied {
		if k.Definition != "" && k.Definition == it.Name && it.Kind == kind.CustomResourceDefinition.Kind {
			return cl.AwaitServed(ctx, k)
		}
	}
	return nil
}

// createNamespace creates the setup's namespace, with an annotation that names the setup. The annotation has a separate
// field manager, so that the next apply keeps it. owned is false if the setup did not create the namespace.
func (a *applier) createNamespace(ctx context.Context, cl *cluster.Client) (owned bool, err error) {
	ns := &unstructured.Unstructured{}
	ns.SetGroupVersionKind(kind.Namespace.GroupVersionKind)
	ns.SetName(cl.Namespace)
	ns.SetAnnotations(map[string]string{annotationCreatedBy: a.topology.Name})
	cl.AddTo(ns) // a policy may require it of a new namespace
	_, err = cl.For(kind.Namespace).Create(ctx, ns,
		metav1.CreateOptions{FieldManager: cluster.NamespaceManager})
	if apierrors.IsAlreadyExists(err) { // a request whose response was lost may have created it
		live, err := cl.ReadNamespace(ctx)
		return err == nil && live != nil && ownsNamespace(a.topology, live), err
	}
	return err == nil, cl.Explain(err, "create Namespace/%s", cl.Namespace)
}

// Delete deletes objects, and then waits until they and their pods are gone. It keeps objects that hold data: only
// Purge deletes them.
func (a *applier) Delete(ctx context.Context, items []plan.Item) error {
	each := func(do func(context.Context, *cluster.Client, kind.Kind, *unstructured.Unstructured) error) error {
		return parallel.Each(ctx, items, func(ctx context.Context, it plan.Item) error {
			k, err := kind.Of(it.GroupVersionKind)
			if err != nil || k.Persistent {
				return err
			}
			cl, err := a.clusters.of(ctx, it.Ref)
			if err != nil {
				return err
			}
			return do(ctx, cl, k, it.Live)
		})
	}
	err := each(func(ctx context.Context, cl *cluster.Client, k kind.Kind, seen *unstructured.Unstructured) error {
		return cl.Explain(cl.DeleteSeen(ctx, k, seen), "delete %s", plan.RefOf(cl.Name, seen))
	})
	if err != nil {
		return err
	}
	return each(func(ctx context.Context, cl *cluster.Client, k kind.Kind, seen *unstructured.Unstructured) error {
		return cl.WaitGone(ctx, k, seen)
	})
}

// Scale sets the number of replicas of the Deployment of a component until the next Apply.
func (a *applier) Scale(ctx context.Context, c *topology.Component, replicas int32) error {
	cl, err := a.clusters.ofComponent(ctx, c)
	if err != nil {
		return err
	}
	out, err := cl.Scale(ctx, kind.Deployment, c.Object(), replicas)
	if err == nil {
		a.workloads.Applied(plan.RefOf(cl.Name, out), out)
	}
	return err
}

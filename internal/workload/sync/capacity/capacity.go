// Package capacity reads the resources of the nodes of a physical cluster, and the requests of the pods on them.
package capacity

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	api "github.com/kcpctl/kcpctl/internal/api/workloads"
	"github.com/kcpctl/kcpctl/internal/workload/placement/schedule"
)

// page is the number of objects in a request. It limits the memory.
const page = 250

// ended excludes pods that no longer request anything.
const ended = "status.phase!=Succeeded,status.phase!=Failed"

// Read returns the resources of a cluster, of those that schedule.Requests knows for any pod. Nodes that accept no pods
// do not count.
func Read(ctx context.Context, client dynamic.Interface) (*api.Capacity, error) {
	out := &api.Capacity{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.Quantity{}},
		Requested: corev1.ResourceList{}}
	nodes := map[string]bool{}
	err := each(ctx, client, "nodes", "", func(n *corev1.Node, _ *unstructured.Unstructured) {
		if accepts(n) {
			nodes[n.Name] = true
			schedule.Add(out.Allocatable, n.Status.Allocatable, 1)
		}
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, client, "pods", ended, func(p *corev1.Pod, u *unstructured.Unstructured) {
		node, _, _ := unstructured.NestedString(u.Object, "spec", "nodeName")
		if node == "" || nodes[node] { // one that waits for a node takes the room, too
			schedule.Add(out.Requested, schedule.Requests(&p.Spec), 1)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func accepts(n *corev1.Node) bool {
	if n.Spec.Unschedulable {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// each calls f with all objects of a resource, converted and as they were read. Only the quantities of a converted
// object can be used: tenants write pods, and quantities that are too long to be parsed are not in it.
func each[T any](ctx context.Context, client dynamic.Interface, resource, fields string,
	f func(*T, *unstructured.Unstructured)) error {
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.Resource(corev1.SchemeGroupVersion.WithResource(resource)).List(ctx, o)
	})
	p.PageSize = page
	p.PageBufferSize = 0
	p.FullListIfExpired = false
	err := p.EachListItem(ctx, metav1.ListOptions{FieldSelector: fields}, func(o runtime.Object) error {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return nil
		}
		object := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{
			"metadata": u.Object["metadata"], "spec": api.Countable(u.Object["spec"]),
			"status": api.Countable(u.Object["status"]),
		}, object); err != nil {
			return fmt.Errorf("%s: %w", u.GetName(), err)
		}
		f(object, u)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the %s of the cluster: %w", resource, err)
	}
	return nil
}

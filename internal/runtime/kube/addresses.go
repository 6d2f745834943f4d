package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/client/cluster"
	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/engine/run"
	"github.com/kcpctl/kcpctl/internal/kit/clierr"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// addresses reads which addresses clusters have assigned to components.
type addresses struct{ clusters *clusters }

// Addresses returns what the clusters have assigned to components.
func (a *addresses) Addresses(ctx context.Context, all []*topology.Component) (map[topology.ID]run.Assigned, error) {
	found := make([]run.Assigned, len(all))
	err := parallel.Each(ctx, parallel.Indices(all), func(ctx context.Context, i int) error {
		cl, err := a.clusters.ofComponent(ctx, all[i])
		if err == nil {
			found[i], err = assignedTo(ctx, cl, all[i])
		}
		return err
	})
	out := map[topology.ID]run.Assigned{}
	for i, c := range all {
		out[c.ID()] = found[i]
	}
	return out, err
}

// assignedTo returns what a cluster has assigned to a component.
func assignedTo(ctx context.Context, cl *cluster.Client, c *topology.Component) (run.Assigned, error) {
	switch c.Expose.Type {
	case v1alpha1.ExposeLoadBalancer:
		return loadBalancer(ctx, cl, c)
	case v1alpha1.ExposeNodePort:
		return nodePort(ctx, cl, c)
	case v1alpha1.ExposeIngress:
		return ingress(ctx, cl, c)
	}
	return run.Assigned{}, nil
}

// balanced has what is read of a Service, or of an Ingress: both have the addresses of their load balancer in the same
// fields.
type balanced struct {
	Status struct {
		LoadBalancer corev1.LoadBalancerStatus `json:"loadBalancer"`
	} `json:"status"`
}

// loadBalancer returns the addresses of the load balancer of a component's Service.
func loadBalancer(ctx context.Context, cl *cluster.Client, c *topology.Component) (run.Assigned, error) {
	out, exists, err := balancerOf(ctx, cl, kind.Service, c)
	if exists && len(out.Hosts) == 0 {
		out.Reason = fmt.Sprintf("Service/%s has no load balancer yet", c.Object()) + lastWarning(ctx, cl, c.Object())
	}
	return out, err
}

// ingress returns the addresses of the controller of a component's Ingress.
func ingress(ctx context.Context, cl *cluster.Client, c *topology.Component) (run.Assigned, error) {
	out, exists, err := balancerOf(ctx, cl, kind.Ingress, c)
	if exists && len(out.Hosts) == 0 {
		out.Reason = fmt.Sprintf("Ingress/%s has no address yet", c.Object())
	}
	return out, err
}

// balancerOf returns the addresses of the load balancer of a component's object, and whether the object exists.
func balancerOf(ctx context.Context, cl *cluster.Client, k kind.Kind,
	c *topology.Component) (out run.Assigned, exists bool, err error) {
	var b balanced
	if exists, err = read(ctx, cl, k, c.Object(), &b); !exists || err != nil {
		out.Reason = missing(k, c)
		return out, false, err
	}
	for _, i := range b.Status.LoadBalancer.Ingress {
		out.Hosts = append(out.Hosts, cmp.Or(i.IP, i.Hostname))
	}
	return out, true, nil
}

// nodePort returns the addresses of the nodes, and the node port of a component's Service.
func nodePort(ctx context.Context, cl *cluster.Client, c *topology.Component) (out run.Assigned, err error) {
	if c.Assignment.Host {
		if out.Hosts, err = nodeAddresses(ctx, cl, c); err != nil {
			return out, err
		}
	}
	var s corev1.Service
	if exists, err := read(ctx, cl, kind.Service, c.Object(), &s); !exists || err != nil {
		out.Reason = missing(kind.Service, c)
		return out, err
	}
	for _, p := range s.Spec.Ports {
		if p.Port == c.ServicePort && p.NodePort != 0 {
			out.Port = p.NodePort
		}
	}
	if out.Port == 0 {
		out.Reason = fmt.Sprintf("Service/%s has no node port", c.Object())
	}
	return out, nil
}

// nodeAddresses returns the addresses of the nodes: those that are reached from everywhere first, else by name. Every
// node accepts connections to node ports.
func nodeAddresses(ctx context.Context, cl *cluster.Client, c *topology.Component) ([]string, error) {
	list, err := cl.Dynamic.Resource(kind.Nodes).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return nil, clierr.New(clierr.Failed,
			"write the address of a node into the setup file instead of "+v1alpha1.AddressAuto,
			"the address of %s is that of a node, and the user may not list nodes (%s)", c.ID(), cl.Where())
	}
	if err != nil {
		return nil, cl.Explain(err, "list nodes")
	}
	slices.SortFunc(list.Items,
		func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	by := map[corev1.NodeAddressType][]string{}
	for i := range list.Items {
		var n corev1.Node
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &n); err != nil {
			return nil, fmt.Errorf("read node %s: %w", list.Items[i].GetName(), err)
		}
		for _, a := range n.Status.Addresses {
			by[a.Type] = append(by[a.Type], a.Address)
		}
	}
	out := slices.Concat(by[corev1.NodeExternalIP], by[corev1.NodeExternalDNS], by[corev1.NodeInternalIP])
	if len(out) == 0 {
		return nil, clierr.New(clierr.Failed,
			"write the address of a node into the setup file instead of "+v1alpha1.AddressAuto,
			"the address of %s is that of a node, and no node has one (%s)", c.ID(), cl.Where())
	}
	return out, nil
}

// read decodes an object into out. It reports whether the object exists. One that is being deleted does not count: its
// addresses go with it.
func read(ctx context.Context, cl *cluster.Client, k kind.Kind, name string, out any) (exists bool, err error) {
	o, err := cl.Get(ctx, k, name)
	if o == nil || o.GetDeletionTimestamp() != nil || err != nil {
		return false, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
		return false, fmt.Errorf("read %s %s: %w", k.Kind, name, err)
	}
	return true, nil
}

func missing(k kind.Kind, c *topology.Component) string {
	return fmt.Sprintf("%s/%s does not exist yet", k.Kind, c.Object())
}

// lastWarning returns the message of the last warning about a Service, for the reason of a wait. It is empty if there
// is none, or if the user may not list events.
func lastWarning(ctx context.Context, cl *cluster.Client, service string) string {
	l, err := cl.Resource(kind.Events).List(ctx, metav1.ListOptions{
		FieldSelector: "type=Warning,involvedObject.kind=Service,involvedObject.name=" + service,
	})
	if err != nil {
		return ""
	}
	var last corev1.Event
	for i := range l.Items {
		var e corev1.Event
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, &e)
		if err == nil && !e.LastTimestamp.Before(&last.LastTimestamp) {
			last = e
		}
	}
	if last.Message == "" {
		return ""
	}
	return ": " + last.Message
}

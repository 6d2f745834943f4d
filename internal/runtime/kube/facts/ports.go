package facts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Occupied returns an error with the node ports and host ports that the objects request and that are in use. Users who
// choose a port learn which Service or pod has it. A dry run does not name the Service, accepts each host port, and is
// not made in a new namespace.
func (c *Cluster) Occupied(ctx context.Context, objects []render.Object) error {
	requested := requestedPorts{node: map[int32]string{}, host: map[int32]string{}}
	own := map[string]bool{}
	for _, o := range objects {
		own[o.GetNamespace()+"/"+o.GetName()] = true
		if err := requested.add(o.Unstructured); err != nil {
			return err
		}
	}
	nodePorts, err := c.usedNodePorts(ctx, requested.node, own)
	if err != nil {
		return err
	}
	hostPorts, err := c.usedHostPorts(ctx, requested.host)
	return errors.Join(append(append(nodePorts, hostPorts...), err)...)
}

// usedNodePorts returns an error for each requested port that a Service has, unless that is one of the setup's own.
func (c *Cluster) usedNodePorts(ctx context.Context, requested map[int32]string, own map[string]bool) ([]error, error) {
	if len(requested) == 0 {
		return nil, nil
	}
	services, err := list[corev1.Service](ctx, c.client, kind.Service.GVR(), "")
	if err != nil {
		return nil, err
	}
	var used []error
	for _, s := range services {
		for _, p := range s.Spec.Ports {
			if owner := requested[p.NodePort]; owner != "" && !own[s.Namespace+"/"+s.Name] {
				used = append(used, fmt.Errorf("node port %d, which %s requests, is in use by Service/%s/%s",
					p.NodePort, owner, s.Namespace, s.Name))
			}
		}
	}
	return used, nil
}

// usedHostPorts returns an error for each requested port that other pods have on every node. As long as one node has
// the ports free, the scheduler finds it.
func (c *Cluster) usedHostPorts(ctx context.Context, requested map[int32]string) ([]error, error) {
	if len(requested) == 0 {
		return nil, nil
	}
	pods, err := list[corev1.Pod](ctx, c.client, kind.Pods, "")
	if err != nil {
		return nil, err
	}
	nodes, err := list[corev1.Node](ctx, c.client, kind.Nodes, "")
	if err != nil {
		return nil, err
	}
	nodesWith := map[int32]map[string]bool{}
	example := map[int32]string{}
	for _, p := range pods {
		ownPod := p.Namespace == c.client.Namespace && p.Labels[topology.LabelSetup] == c.setup
		if ownPod || p.Spec.NodeName == "" {
			continue
		}
		for _, port := range hostPorts(p.Spec) {
			if requested[port] == "" {
				continue
			}
			if nodesWith[port] == nil {
				nodesWith[port] = map[string]bool{}
			}
			nodesWith[port][p.Spec.NodeName] = true
			example[port] = p.Namespace + "/" + p.Name
		}
	}
	var used []error
	for _, port := range slices.Sorted(maps.Keys(nodesWith)) {
		if len(nodesWith[port]) == len(nodes) {
			used = append(used, fmt.Errorf("host port %d, which %s requests, is in use on every node, for "+
				"example by Pod/%s",
				port, requested[port], example[port]))
		}
	}
	return used, nil
}

// requestedPorts are the ports that objects request by number, with the object.
type requestedPorts struct{ node, host map[int32]string }

func (r requestedPorts) add(o *unstructured.Unstructured) error {
	owner := o.GetKind() + "/" + o.GetName()
	if o.GetKind() == kind.Service.Kind {
		var s corev1.Service
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s); err != nil {
			return fmt.Errorf("read %s: %w", owner, err)
		}
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				r.node[p.NodePort] = owner
			}
		}
		return nil
	}
	spec, err := podSpec(o)
	if spec == nil || err != nil {
		return err
	}
	for _, port := range hostPorts(*spec) {
		r.host[port] = owner
	}
	return nil
}

func hostPorts(spec corev1.PodSpec) []int32 {
	var out []int32
	for _, c := range spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				out = append(out, p.HostPort)
			}
		}
	}
	return out
}

// podSpec is the spec of the pods of a workload, or nil if an object is not a workload.
func podSpec(o *unstructured.Unstructured) (*corev1.PodSpec, error) {
	raw, ok, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil || !ok {
		return nil, err
	}
	var spec corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec); err != nil {
		return nil, fmt.Errorf("read the pods of %s/%s: %w", o.GetKind(), o.GetName(), err)
	}
	return &spec, nil
}

package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/client/kind"
	"github.com/kcpctl/kcpctl/internal/client/object"
	"github.com/kcpctl/kcpctl/internal/desired/render"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
	"github.com/kcpctl/kcpctl/internal/kit/parallel"
)

// etcdMembers prepares the replacement of a member of a managed etcd.
type etcdMembers struct {
	topology *topology.Topology
	clusters *clusters
}

// MemberStart returns the variables that SetMemberStart has set, or nil.
func (m *etcdMembers) MemberStart(ctx context.Context, c *topology.Component) (map[string]string, error) {
	cl, err := m.clusters.ofComponent(ctx, c)
	if err != nil {
		return nil, err
	}
	o, err := cl.Get(ctx, kind.ConfigMap, c.Object(topology.JoinConfig))
	if o == nil || err != nil {
		return nil, err
	}
	env, _, err := unstructured.NestedStringMap(o.Object, "data")
	return env, err
}

// SetMemberStart applies the ConfigMap with variables that override the rendered ones in the pods of an etcd, or
// deletes it if there are none. It is one of the setup's objects, so that up and down remove what an interrupted run
// left.
func (m *etcdMembers) SetMemberStart(ctx context.Context, c *topology.Component, env map[string]string) error {
	cl, err := m.clusters.ofComponent(ctx, c)
	if err != nil {
		return err
	}
	name := c.Object(topology.JoinConfig)
	if env == nil {
		err := cl.For(kind.ConfigMap).Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return cl.Explain(err, "delete ConfigMap/%s/%s", cl.Namespace, name)
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind.ConfigMap.GroupVersionKind)
	o.SetName(name)
	o.SetNamespace(cl.Namespace)
	labels := c.Labels()
	labels[topology.LabelApplySet] = m.topology.ApplySet(c.Cluster)
	o.SetLabels(labels)
	cl.AddTo(o)
	if err := unstructured.SetNestedStringMap(o.Object, env, "data"); err != nil {
		return err
	}
	// It belongs to kcpctl alone: a manual edit must not keep a member from joining.
	_, err = cl.Apply(ctx, o, object.ApplyOptions{Force: true})
	return cl.Explain(err, "apply ConfigMap/%s/%s", cl.Namespace, name)
}

// EmptyMember deletes a member's pod with its volume, and waits until both are gone: the StatefulSet creates new ones.
// A volume in use is not removed until its pod is gone, and the next pod does not start before the volume is gone, so
// they are deleted together.
func (m *etcdMembers) EmptyMember(ctx context.Context, c *topology.Component, pod string) error {
	cl, err := m.clusters.ofComponent(ctx, c)
	if err != nil {
		return err
	}
	type object struct {
		kind.Kind
		name string
		seen *unstructured.Unstructured
	}
	objects := []object{{kind.PersistentVolumeClaim, render.MemberClaim(pod), nil}, {kind.Pod, pod, nil}}
	for i, o := range objects {
		if objects[i].seen, err = cl.Get(ctx, o.Kind, o.name); err != nil {
			return err
		}
	}
	return parallel.Each(ctx, objects, func(ctx context.Context, o object) error {
		if o.seen == nil {
			return nil
		}
		return cl.Delete(ctx, o.Kind, o.seen)
	})
}

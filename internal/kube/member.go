package kube

import (
	"context"
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/run"
	"github.com/kcpctl/kcpctl/internal/topology"
)

var _ run.MemberRuntime = (*Runtime)(nil)

// DialMember connects to the client port of a member's pod.
func (r *Runtime) DialMember(ctx context.Context, c *topology.Component, pod string) (net.Conn, error) {
	ctx = quiet(ctx)
	s, err := r.siteOf(ctx, c)
	if err != nil {
		return nil, err
	}
	w, err := r.workload(ctx, s, c)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(w.Pods, func(p *corev1.Pod) bool { return p.Name == pod })
	if i < 0 || w.Pods[i].DeletionTimestamp != nil || w.Pods[i].Status.Phase != corev1.PodRunning {
		return nil, clierr.New(clierr.Failed, "see why with: kcpctl status", "Pod/%s/%s does not run", s.Namespace, pod)
	}
	return r.dialPod(ctx, s, w.Pods[i], c.Port)
}

// MemberStart returns what SetMemberStart has set.
func (r *Runtime) MemberStart(ctx context.Context, c *topology.Component) (map[string]string, error) {
	ctx = quiet(ctx)
	s, err := r.siteOf(ctx, c)
	if err != nil {
		return nil, err
	}
	o, err := s.get(ctx, known("ConfigMap").GroupVersionKind, c.Object(topology.JoinConfig))
	if o == nil || err != nil {
		return nil, err
	}
	env, _, err := unstructured.NestedStringMap(o.Object, "data")
	return env, err
}

// SetMemberStart writes the ConfigMap that pods of an etcd prefer to the one that was rendered, or deletes it. It is one of
// the setup's objects, so that up and down remove what an interrupted run left.
func (r *Runtime) SetMemberStart(ctx context.Context, c *topology.Component, env map[string]string) error {
	ctx = quiet(ctx)
	s, err := r.siteOf(ctx, c)
	if err != nil {
		return err
	}
	k, name := known("ConfigMap"), c.Object(topology.JoinConfig)
	if env == nil {
		err := s.resource(k.gvr()).Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return s.explain(err, "delete ConfigMap/%s/%s", s.Namespace, name)
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(k.GroupVersionKind)
	o.SetName(name)
	o.SetNamespace(s.Namespace)
	labels := c.Labels()
	labels[topology.LabelApplySet] = r.topology.ApplySet(c.Cluster)
	o.SetLabels(labels)
	if err := unstructured.SetNestedStringMap(o.Object, env, "data"); err != nil {
		return err
	}
	// It is nobody else's: people who edited it must not keep a member from joining.
	_, err = s.apply(ctx, o, applyOptions{force: true})
	return s.explain(err, "apply ConfigMap/%s/%s", s.Namespace, name)
}

// EmptyMember deletes a member's pod with its volume, and waits until both are gone: the StatefulSet makes others.
func (r *Runtime) EmptyMember(ctx context.Context, c *topology.Component, pod string) error {
	ctx = quiet(ctx)
	s, err := r.siteOf(ctx, c)
	if err != nil {
		return err
	}
	var doomed []*unstructured.Unstructured
	for _, o := range []struct {
		kind
		name string
	}{{known("PersistentVolumeClaim"), render.MemberClaim(pod)}, {podKind(), pod}} {
		live, err := s.resource(o.gvr()).Get(ctx, o.name, metav1.GetOptions{})
		switch {
		case err == nil:
			doomed = append(doomed, live)
		case !apierrors.IsNotFound(err):
			return s.explain(err, "read %s/%s/%s", o.Kind, s.Namespace, o.name)
		}
	}
	// A volume in use stays until its pod is gone, and the next pod does not start before it is: so they are deleted at once.
	return concurrently(ctx, doomed, func(ctx context.Context, o *unstructured.Unstructured) error {
		k := known("PersistentVolumeClaim")
		if o.GetKind() != k.Kind {
			k = podKind()
		}
		return s.delete(ctx, k, o)
	})
}

func podKind() kind {
	return kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), resource: pods().Resource}
}

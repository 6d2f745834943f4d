package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/check"
	"github.com/kcpctl/kcpctl/internal/clierr"
	"github.com/kcpctl/kcpctl/internal/render"
	"github.com/kcpctl/kcpctl/internal/topology"
)

// Admit tells of each pod that the namespace would not take, why. Each is created in a dry run.
func (f *facts) Admit(ctx context.Context, objects []render.Object) error {
	ctx = quiet(ctx)
	if err := f.site.connect(ctx); err != nil {
		return err
	}
	ns, err := f.site.readNamespace(ctx)
	if err != nil {
		return err
	}
	if ns == nil {
		return fmt.Errorf("%w: Namespace/%s does not exist yet (%s)", check.ErrUnknown, f.site.Namespace, f.site.where())
	}
	refused := make([]string, len(objects))
	err = concurrently(ctx, indices(objects), func(ctx context.Context, i int) (err error) {
		refused[i], err = f.admit(ctx, objects[i].Unstructured)
		return err
	})
	if err != nil {
		return err
	}
	// Pods that are alike are refused alike.
	who := map[string][]string{}
	for i, why := range refused {
		if why != "" {
			who[why] = append(who[why], objects[i].GetKind()+"/"+objects[i].GetName())
		}
	}
	var errs []error
	for _, why := range slices.Sorted(maps.Keys(who)) {
		errs = append(errs, clierr.New(clierr.Failed, "", "Namespace/%s takes no pod of %s: %s", f.site.Namespace, strings.Join(who[why], ", "), why))
	}
	return errors.Join(errs...)
}

// admit returns why a pod of a workload would not be created; nothing if it would, or if the object has no pods.
func (f *facts) admit(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	template, ok, _ := unstructured.NestedMap(o.Object, "spec", "template")
	if !ok {
		return "", nil
	}
	if err := addClaims(o, template); err != nil {
		return "", err
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod.SetName("")
	pod.SetGenerateName(o.GetName() + "-")
	_, err := f.site.resource(pods()).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return "", nil
	case isDenied(err):
		return "", fmt.Errorf("%w: the user may not create pods, not even in a dry run (%s)", check.ErrUnknown, f.site.where())
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return "", nil // that is looked at for all pods together
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return because(err.Error()), nil
	}
	return "", f.site.explain(err, "try a pod of %s/%s", o.GetKind(), o.GetName())
}

// addClaims adds the volumes of a StatefulSet's claims to its pods, as its controller does.
func addClaims(o *unstructured.Unstructured, template map[string]any) error {
	claims, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	volumes, _, _ := unstructured.NestedSlice(template, "spec", "volumes")
	for _, c := range claims {
		if m, ok := c.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(m, "metadata", "name")
			volumes = append(volumes, map[string]any{
				"name": name, "persistentVolumeClaim": map[string]any{"claimName": name + "-" + o.GetName() + "-0"},
			})
		}
	}
	return unstructured.SetNestedSlice(template, volumes, "spec", "volumes")
}

// because is what an API server says after the name of the pod, which is made up: pods "x" is forbidden: violates ...
func because(message string) string {
	for _, sign := range []string{" is forbidden: ", " is invalid: "} {
		if _, after, ok := strings.Cut(message, sign); ok {
			return after
		}
	}
	return message
}

// Occupied tells of node ports and host ports that the objects want and others have.
func (f *facts) Occupied(ctx context.Context, objects []render.Object) error {
	ctx = quiet(ctx)
	ours := map[string]bool{}
	nodePorts, hostPorts := map[int32]string{}, map[int32]string{}
	for _, o := range objects {
		ours[o.GetNamespace()+"/"+o.GetName()] = true
		if err := wantedPorts(o.Unstructured, nodePorts, hostPorts); err != nil {
			return err
		}
	}
	var errs []error
	if len(nodePorts) > 0 {
		services, err := listAs[corev1.Service](ctx, f.site, known("Service").gvr(), "")
		if err != nil {
			return err
		}
		for _, s := range services {
			for _, p := range s.Spec.Ports {
				if who := nodePorts[p.NodePort]; who != "" && !ours[s.Namespace+"/"+s.Name] {
					errs = append(errs, fmt.Errorf("node port %d, which %s wants, is that of Service/%s/%s", p.NodePort, who, s.Namespace, s.Name))
				}
			}
		}
	}
	if len(hostPorts) > 0 {
		err := f.hostPorts(ctx, hostPorts)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hostPorts tells of ports of nodes that pods of others have on every node. As long as one node has them free the
// scheduler finds it.
func (f *facts) hostPorts(ctx context.Context, wanted map[int32]string) error {
	all, err := listAs[corev1.Pod](ctx, f.site, pods(), "")
	if err != nil {
		return err
	}
	nodes, err := listAs[corev1.Node](ctx, f.site, nodes(), "")
	if err != nil {
		return err
	}
	taken, example := map[int32]map[string]bool{}, map[int32]string{}
	for _, p := range all {
		if p.Namespace == f.site.Namespace && p.Labels[topology.LabelSetup] == f.runtime.topology.Name {
			continue
		}
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				if wanted[port.HostPort] != "" && p.Spec.NodeName != "" {
					if taken[port.HostPort] == nil {
						taken[port.HostPort] = map[string]bool{}
					}
					taken[port.HostPort][p.Spec.NodeName] = true
					example[port.HostPort] = p.Namespace + "/" + p.Name
				}
			}
		}
	}
	var errs []error
	for _, port := range slices.Sorted(maps.Keys(taken)) {
		if len(taken[port]) == len(nodes) {
			errs = append(errs, fmt.Errorf("port %d of the nodes, which %s wants, is taken on every node, such as by Pod/%s",
				port, wanted[port], example[port]))
		}
	}
	return errors.Join(errs...)
}

// wantedPorts collects the node ports and the host ports that an object asks for by number.
func wantedPorts(o *unstructured.Unstructured, nodePorts, hostPorts map[int32]string) error {
	who := o.GetKind() + "/" + o.GetName()
	if o.GetKind() == "Service" {
		var s corev1.Service
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s); err != nil {
			return fmt.Errorf("read %s: %w", who, err)
		}
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				nodePorts[p.NodePort] = who
			}
		}
		return nil
	}
	raw, ok, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if !ok {
		return nil
	}
	var spec corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec); err != nil {
		return fmt.Errorf("read the pods of %s: %w", who, err)
	}
	for _, c := range spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				hostPorts[p.HostPort] = who
			}
		}
	}
	return nil
}

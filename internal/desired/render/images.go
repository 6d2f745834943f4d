package render

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcpctl/kcpctl/internal/desired/pki"
	"github.com/kcpctl/kcpctl/internal/desired/topology"
)

// Images returns the images of all pods of a setup, sorted. They need no PKI.
func Images(t *topology.Topology) ([]string, error) {
	r, err := newRenderer(t, &pki.State{})
	if err != nil {
		return nil, err
	}
	r.only = func(template string) bool { return template == deploymentTemplate || template == statefulSetTemplate }
	var out []string
	for _, c := range t.Components {
		if !c.Kind.Runs() {
			continue
		}
		objects, err := r.component(c)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", c.ID(), err)
		}
		for _, o := range objects {
			images, err := imagesOf(o.Unstructured)
			if err != nil {
				return nil, fmt.Errorf("images of %s: %w", c.ID(), err)
			}
			out = append(out, images...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// imagesOf returns the images of the pods of a workload.
func imagesOf(o *unstructured.Unstructured) ([]string, error) {
	spec, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		return nil, err
	}
	var pod corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod); err != nil {
		return nil, err
	}
	var out []string
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		out = append(out, c.Image)
	}
	return out, nil
}

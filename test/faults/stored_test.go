package faults

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcpctl/kcpctl/test/standin"
)

// stored is the content of the Secrets and ConfigMaps of a namespace, by resource, name and key.
type stored map[string]map[string][]byte

// stored reads the Secrets and ConfigMaps of the namespace.
func (p *place) stored(ctx context.Context) (stored, error) {
	out := stored{}
	for _, r := range []schema.GroupVersionResource{standin.Secrets, standin.ConfigMaps} {
		l, err := p.world.Admin.Resource(r).Namespace(p.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range l.Items {
			o := &l.Items[i]
			if out[r.Resource+"/"+o.GetName()], err = standin.Contents(o); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// mountedBy returns the files that a pod mounts, by path.
func (s stored) mountedBy(pod *corev1.Pod) (map[string][]byte, error) {
	return standin.Mounted(&pod.Spec, func(r schema.GroupVersionResource, name string) (map[string][]byte, error) {
		return s[r.Resource+"/"+name], nil
	})
}

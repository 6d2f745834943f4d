//go:build integration

package faults

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// stored is the content of the Secrets and ConfigMaps of a namespace, by resource, name and key.
type stored map[string]map[string][]byte

// stored reads the Secrets and ConfigMaps of the namespace.
func (p *place) stored(ctx context.Context) (stored, error) {
	out := stored{}
	for _, r := range []schema.GroupVersionResource{secrets, configMaps} {
		l, err := p.world.admin.Resource(r).Namespace(p.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range l.Items {
			data, key := map[string][]byte{}, r.Resource+"/"+l.Items[i].GetName()
			if r == secrets {
				s := &corev1.Secret{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, s); err != nil {
					return nil, err
				}
				data = s.Data
			} else {
				c := &corev1.ConfigMap{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, c); err != nil {
					return nil, err
				}
				for k, v := range c.Data {
					data[k] = []byte(v)
				}
			}
			out[key] = data
		}
	}
	return out, nil
}

// mountedBy returns the files that a pod mounts, by path.
func (s stored) mountedBy(pod *corev1.Pod) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, src := range v.Projected.Sources {
			var name string
			var items []corev1.KeyToPath
			switch {
			case src.Secret != nil:
				name, items = secrets.Resource+"/"+src.Secret.Name, src.Secret.Items
			case src.ConfigMap != nil:
				name, items = configMaps.Resource+"/"+src.ConfigMap.Name, src.ConfigMap.Items
			}
			for _, it := range items {
				content, ok := s[name][it.Key]
				if !ok {
					return nil, fmt.Errorf("pod %s mounts %s of %s, which does not exist", pod.Name, it.Key, name)
				}
				files[it.Path] = content
			}
		}
	}
	return files, nil
}

package standin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Contents returns the values of a Secret or a ConfigMap, by key.
func Contents(o *unstructured.Unstructured) (map[string][]byte, error) {
	if o.GetKind() == "Secret" {
		s := &corev1.Secret{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, s)
		return s.Data, err
	}
	c := &corev1.ConfigMap{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, c); err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	for k, v := range c.Data {
		data[k] = []byte(v)
	}
	return data, nil
}

// Read returns the values of the Secret or ConfigMap with a name, by key. It may return nil if there is none.
type Read func(r schema.GroupVersionResource, name string) (map[string][]byte, error)

// Mounted returns the files that the projected volumes of a pod have, by path. It fails if one does not exist.
func Mounted(pod *corev1.PodSpec, read Read) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, v := range pod.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, src := range v.Projected.Sources {
			var r schema.GroupVersionResource
			var name string
			var items []corev1.KeyToPath
			switch {
			case src.Secret != nil:
				r, name, items = Secrets, src.Secret.Name, src.Secret.Items
			case src.ConfigMap != nil:
				r, name, items = ConfigMaps, src.ConfigMap.Name, src.ConfigMap.Items
			default:
				continue
			}
			data, err := read(r, name)
			if err != nil {
				return nil, err
			}
			for _, it := range items {
				content, ok := data[it.Key]
				if !ok {
					return nil, fmt.Errorf("%s of %s/%s does not exist", it.Key, r.Resource, name)
				}
				files[it.Path] = content
			}
		}
	}
	return files, nil
}

// mounted reads the files that the pods of a template mount.
func (s *Site) mounted(ctx context.Context, template map[string]any) (map[string][]byte, error) {
	pod := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod); err != nil {
		return nil, err
	}
	return Mounted(&pod.Spec, func(r schema.GroupVersionResource, name string) (map[string][]byte, error) {
		o, err := s.admin.Resource(r).Namespace(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s %s: %s", r.Resource, name, err) // it must not count as a missing workload
		}
		return Contents(o)
	})
}

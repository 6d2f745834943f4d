package render

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/kcpctl/kcpctl/internal/api/v1alpha1"
	"github.com/kcpctl/kcpctl/internal/kit/strategic"
)

// overlay is a patch for the part of an object at a path, which has a type.
type overlay struct {
	path  []string
	typ   reflect.Type
	patch v1alpha1.Overlay
}

func podOverlays(all []v1alpha1.Overlay) []overlay {
	var out []overlay
	for _, o := range all {
		out = append(out, overlay{[]string{"spec", "template"}, reflect.TypeFor[corev1.PodTemplateSpec](), o})
	}
	return out
}

// serviceOverlays separates metadata from the fields of the spec: the setup file has them in one map.
func serviceOverlays(all []v1alpha1.Overlay) []overlay {
	var out []overlay
	for _, o := range all {
		spec := v1alpha1.Overlay{}
		for k, v := range o {
			if k == "metadata" {
				if m, ok := v.(map[string]any); ok {
					out = append(out, overlay{[]string{"metadata"}, reflect.TypeFor[metav1.ObjectMeta](), m})
				}
				continue
			}
			spec[k] = v
		}
		out = append(out, overlay{[]string{"spec"}, reflect.TypeFor[corev1.ServiceSpec](), spec})
	}
	return out
}

// merge applies an overlay to an object by strategic merge. That must leave no field that the type of the part does not
// have.
func (o overlay) merge(obj map[string]any) error {
	path := strings.Join(o.path, ".")
	// Through JSON: the objects have the types of JSON.
	js, err := json.Marshal(o.patch)
	if err != nil {
		return fmt.Errorf("overlay of %s: %w", path, err)
	}
	var own map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(js, &own); err != nil {
		return fmt.Errorf("overlay of %s: %w", path, err)
	}
	last := len(o.path) - 1
	parent := part(obj, o.path[:last]...)
	merged := strategic.Merge(part(parent, o.path[last]), own, o.typ)
	parent[o.path[last]] = merged
	if err := strict(merged, reflect.New(o.typ).Interface()); err != nil {
		return fmt.Errorf("overlay of %s: %w", path, err)
	}
	return nil
}

// part returns the part of an object at a path. It adds what does not exist.
func part(obj map[string]any, path ...string) map[string]any {
	for _, field := range path {
		next, ok := obj[field].(map[string]any)
		if !ok {
			next = map[string]any{}
			obj[field] = next
		}
		obj = next
	}
	return obj
}

// strict fails if an object has a field that its type does not have.
func strict(obj map[string]any, into any) error {
	js, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(js, into)
	if err == nil && len(unknown) > 0 {
		err = unknown[0]
	}
	return err
}
